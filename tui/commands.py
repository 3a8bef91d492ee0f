"""The `/` commands of the chat: one table for completion, help and dispatch."""

from __future__ import annotations

from localinfer.records import dataclass


@dataclass(frozen=True)
class Command:
    """`/name argument`; the chat screen has a method `command_<name>(argument)`."""

    name: str
    argument: str
    help: str
    optional: bool = False  # does something without its argument, too


COMMANDS = (
    Command("new", "", "start a new conversation"),
    Command("system", "TEXT", "set the system prompt of this conversation (empty: none)"),
    Command("set", "NAME VALUE", "sampling: temperature, top_k, top_p, min_p, repeat_penalty, seed, max_tokens, ..."),
    Command("continue", "", "go on where the last answer ended"),
    Command("regenerate", "", "answer again, as a further branch"),
    Command("edit", "", "edit your last message, as a further branch"),
    Command("copy", "", "copy the last answer"),
    Command("code", "", "copy the last code block"),
    Command("think", "on|off|auto", "let the model think or not; without a word: show or fold what it thought", True),
    Command("tree", "", "show or hide the tree of branches"),
    Command("chats", "", "show or hide the saved conversations"),
    Command("title", "TEXT", "rename this conversation"),
    Command("pin", "", "pin or unpin this conversation"),
    Command("export", "FILE", "write this conversation to a .md or .json file"),
    Command("import", "FILE", "read a conversation from a .json file"),
    Command("models", "", "choose a model"),
    Command("reload", "CTX", "load the model again, with another context length where one is given", True),
    Command("plan", "", "what fits into memory, and what to change"),
    Command("bench", "", "measure speed over context depth"),
    Command("settings", "", "edit the settings in $EDITOR: theme, width, sampling, ..."),
    Command("theme", "", "switch between dark and light"),
    Command("help", "", "keys and commands"),
    Command("quit", "", "leave"),
)
BY_NAME = {command.name: command for command in COMMANDS}


def parse_command(text: str) -> tuple[Command, str] | None:
    """`/set seed 3` -> (the command, 'seed 3'); None when the text is a message (`/etc/hosts is ...`)."""
    if not text.startswith("/"):
        return None
    name, _, argument = text[1:].partition(" ")
    command = BY_NAME.get(name.strip())
    return (command, argument.strip()) if command else None


def completions(text: str) -> list[Command]:
    """The commands that a text which starts with `/` may become; none once its name is complete."""
    if not text.startswith("/") or " " in text or "\n" in text:
        return []
    return [command for command in COMMANDS if command.name.startswith(text[1:].lower())]
