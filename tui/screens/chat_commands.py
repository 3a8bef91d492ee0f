"""What the `/` commands and the keys on a message do: one method a command, `command_<name>(argument)`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import SuspendNotSupported

from localinfer.errors import LocalinferError, UsageError
from localinfer.history import ROOT, ChatMessage, ConversationBusy, SavedConversation
from localinfer.history_store import export_markdown
from localinfer.records import replace
from localinfer.tui.bridge import EngineOptions
from localinfer.tui.commands import Command
from localinfer.tui.hints import complaint, sentence
from localinfer.tui.screens.confirm import ConfirmScreen
from localinfer.tui.widgets.message_view import MessageView, code_blocks
from localinfer.tui.widgets.tree_panel import TreePanel
from localinfer.units import parse_tokens

if TYPE_CHECKING:
    from textual.screen import Screen

    from localinfer.tui.app import LocalinferApp
    from localinfer.tui.models import ModelRow
    from localinfer.tui.session import ChatSession
    from localinfer.tui.widgets.composer import Composer
    from localinfer.tui.widgets.transcript import Transcript

    _Base = Screen[None]
else:
    _Base = object


HOW_TO_SAVE = "Free some space, or write it to another disk with /export FILE.json"


class ChatCommands(_Base):
    """Mixed into ChatScreen, which has the widgets and the turn."""

    if TYPE_CHECKING:
        app: LocalinferApp
        session: ChatSession
        composer: Composer
        transcript: Transcript
        editing: int | None
        views: dict[int, MessageView]

        def show_conversation(self, keep_position: bool = False) -> None: ...
        def start_answer(self, parent: int | None = None, going_on: ChatMessage | None = None) -> None: ...
        def leave_edit(self) -> None: ...

    def run_command(self, command: Command, argument: str) -> None:
        self._attempt(f"/{command.name}", lambda: getattr(self, f"command_{command.name}")(argument))

    def _attempt(self, title: str, do: Callable[[], None]) -> None:
        """Errors of the tree become a line on screen."""
        try:
            do()
        except LocalinferError as error:
            self.notify(complaint(error), title=title, severity="error", markup=False)

    # conversations

    def command_new(self, argument: str) -> None:
        self._must_be_left()
        self.session.start_new()
        self.leave_edit()
        self.show_conversation()
        self.uncover()
        self.composer.focus()

    def command_chats(self, argument: str) -> None:
        from localinfer.tui.screens.conversations import ConversationsScreen

        screen = ConversationsScreen(self.session.store, self.session.conversation.id)
        self.app.push_screen(screen, lambda chosen: self.open_conversation(chosen) if chosen else None)

    def open_conversation(self, conversation_id: str) -> None:
        """Show a saved conversation; where another copy of the program has it open, offer to go on in a copy."""
        if conversation_id == self.session.conversation.id:
            return
        try:
            self._must_be_left()
            conversation = self.session.store.open(conversation_id)
        except LocalinferError as error:
            if isinstance(error, ConversationBusy):
                self._offer_copy(conversation_id, error)
            else:
                self.notify(complaint(error), severity="error", markup=False)
            return
        self._show_other(conversation)

    def _offer_copy(self, conversation_id: str, error: LocalinferError) -> None:
        def copy(yes: bool | None) -> None:
            if yes:
                store = self.session.store
                self._attempt("Copy", lambda: self._show_other(store.copy(store.read(conversation_id))))

        self.app.push_screen(ConfirmScreen(f"{sentence(error.message)}\nGo on here in a copy of it?"), copy)

    def _show_other(self, conversation: SavedConversation) -> None:
        self.session.switch_to(conversation)
        self._say_what_is_ignored()
        self.views = {}
        self.leave_edit()
        self.show_conversation()
        self.uncover()
        self.composer.focus()

    def _say_what_is_ignored(self) -> None:
        if ignored := self.session.ignored:
            text = f"not understood, and left out: {', '.join(ignored)}"
            self.notify(text, title="Settings of this conversation", severity="warning", markup=False)

    def command_tree(self, argument: str) -> None:
        panel = self.query_one(TreePanel)
        panel.display = not panel.display
        self.set_class(panel.display, "-tree")
        if panel.display:
            panel.show(self.session.conversation)
            panel.focus()
        else:
            self.composer.focus()

    def uncover(self) -> None:
        """Close the tree where it takes the place of the conversation."""
        if self.has_class("-narrow") and self.query_one(TreePanel).display:
            self.command_tree("")

    def show_branch(self, message_id: int) -> None:
        """The branch through a message, down to its newest end."""
        if self.session.turn is None:
            conversation = self.session.conversation
            conversation.select(conversation.newest_leaf(message_id))
            self.show_conversation()

    def command_system(self, argument: str) -> None:
        conversation = self.session.conversation
        conversation.configure(argument, conversation.params)
        self.notify(argument or "none", title="System prompt", markup=False)

    def command_set(self, argument: str) -> None:
        from localinfer.tui.screens.details import DetailsScreen

        name, _, value = argument.partition(" ")
        current = {key: value for key, value in vars(self.session.params).items() if key != "ignore_eos"}
        current["thinking"] = self.session.thinking
        if not argument:
            rows = [("", "Now"), *((key, _shown(value)) for key, value in current.items())]
            rows += [("", "To change one"), ("/set NAME VALUE", "for example /set temperature 0.3")]
            self.app.push_screen(DetailsScreen("Settings of this conversation", rows))
            return
        if name not in current:
            raise UsageError(f"expected one of {', '.join(current)}, found {name!r}", "/set alone shows their values")
        if not value:
            raise UsageError(f"{name} is {_shown(current[name])}", f"/set {name} VALUE changes it")
        self.session.set_param(name, _parsed(name, value.strip()))
        self.notify(f"{name} = {value.strip()}", title="Sampling", markup=False)

    def command_title(self, argument: str) -> None:
        self.session.conversation.rename(argument)
        self.show_conversation(keep_position=True)

    def command_pin(self, argument: str) -> None:
        conversation = self.session.conversation
        conversation.pin(not conversation.pinned)
        self.show_conversation(keep_position=True)

    def command_export(self, argument: str) -> None:
        conversation = self.session.conversation
        if not conversation.messages:
            raise UsageError("there is nothing to export yet")
        path = Path(argument or f"{conversation.id}.md").expanduser()
        json = path.suffix == ".json"
        text = self.session.store.export_json(conversation) if json else export_markdown(conversation)
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}", "give another file name") from error
        self.notify(str(path), title="Exported", markup=False)

    def command_import(self, argument: str) -> None:
        self._must_be_left()
        path = Path(argument).expanduser()
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', '') or 'not UTF-8 text'}") from error
        self.session.switch_to(self.session.store.import_json(text))
        self._say_what_is_ignored()
        self.show_conversation()

    # answers

    def command_continue(self, argument: str) -> None:
        message = self._last("assistant")
        self._must_be_ready()
        self.start_answer(going_on=message)

    def command_regenerate(self, argument: str) -> None:
        conversation = self.session.conversation
        leaf = conversation.messages.get(conversation.leaf)
        if leaf is None:
            raise UsageError("there is no question yet")
        self.regenerate(leaf.id)

    def regenerate(self, message_id: int) -> None:
        """Another answer to the same question: at an answer beside it, at a question below it."""
        self._must_be_ready()
        message = self.session.conversation.messages[message_id]
        self.start_answer(parent=message.id if message.role == "user" else message.parent)

    def command_edit(self, argument: str) -> None:
        self.edit(self._last("user").id)

    def reword(self, message_id: int, text: str) -> None:
        """The model's answer in the user's words, as a branch beside it; what comes next builds on that."""
        self.session.reword(message_id, text)
        self.leave_edit()
        self.show_conversation()

    def edit(self, message_id: int) -> None:
        """Put a message into the composer; sending it makes a branch."""
        self._must_be_idle()
        message = self.session.conversation.messages[message_id]
        self.editing = message_id
        self.composer.put(message.text)
        whose = "your message" if message.role == "user" else "the answer"
        long = f"editing {whose} · Enter makes a branch · Esc leaves"
        self.composer.border_title = long if len(long) + 6 < self.size.width else "editing · Esc leaves"
        self.composer.focus()

    def step_sibling(self, message_id: int, step: int) -> None:
        """Show the branch beside this message's."""
        conversation = self.session.conversation
        if message_id not in conversation.messages or self.session.turn is not None:
            return
        siblings = conversation.siblings(message_id)
        index = siblings.index(message_id) + step
        if 0 <= index < len(siblings):
            conversation.select(conversation.newest_leaf(siblings[index]))
            self.show_conversation(keep_position=True)
            self.transcript.put_cursor(siblings[index])

    def on_message(self, verb: str, message_id: int) -> None:
        """A key on a message."""
        try:
            if verb == "edit":
                self.edit(message_id)
            elif verb == "regenerate":
                self.regenerate(message_id)
            elif verb == "copy":
                self._copy(self.session.conversation.messages[message_id].text, "message")
            else:
                self._copy_code([self.session.conversation.messages[message_id]])
        except LocalinferError as error:
            self.notify(complaint(error), severity="warning", markup=False)

    def command_copy(self, argument: str) -> None:
        self._copy(self._last("assistant").text, "answer")

    def command_code(self, argument: str) -> None:
        self._copy_code(self.session.conversation.path()[::-1])

    def _copy_code(self, messages: list[ChatMessage]) -> None:
        blocks = next((found for m in messages if (found := code_blocks(m.text))), None)
        if not blocks:
            raise UsageError("there is no code block to copy")
        self._copy(blocks[-1], "code block")

    def _copy(self, text: str, what: str) -> None:
        self.app.copy_to_clipboard(text)
        self.notify(f"{what.capitalize()} copied, {len(text):,} characters.")

    def command_think(self, argument: str) -> None:
        if not argument:
            self.transcript.toggle_all_thinking()
            return
        self.session.set_param("thinking", argument.lower())
        self.notify(f"thinking: {self.session.thinking}, from the next answer on", markup=False)

    # the model

    def command_models(self, argument: str) -> None:
        from localinfer.tui.screens.models import ModelsScreen

        def load(row: ModelRow | None) -> None:
            if row is not None:
                self.load_chosen(row.path, self.app.options)

        self.app.push_screen(ModelsScreen(), load)

    def command_plan(self, argument: str) -> None:
        self._must_have_model()
        self.app.show_plan(self.app.model_path)

    def command_bench(self, argument: str) -> None:
        from localinfer.tui.screens.bench import BenchScreen

        self._must_be_ready()
        self.app.push_screen(BenchScreen(self.app.model_path))

    def command_reload(self, argument: str) -> None:
        self._must_have_model()
        ctx = parse_tokens(argument) if argument else self.app.options.ctx
        self.load(self.app.model_path, replace(self.app.options, ctx=ctx))

    def load(self, path: str, options: EngineOptions) -> None:
        """Another model, or the same with other options. The conversation stays."""
        self._must_be_idle()
        self.app.open_model(path, options)

    def load_chosen(self, path: str, options: EngineOptions) -> None:
        """`load` for what was chosen on another screen, while an answer may have begun to be written."""
        self._attempt("Load", lambda: self.load(path, options))

    def _must_have_model(self) -> None:
        if not self.app.model_path:
            raise UsageError("no model is chosen", "Ctrl+O lists the models")

    # the program

    def command_help(self, argument: str) -> None:
        from localinfer.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen())

    def command_settings(self, argument: str) -> None:
        """The settings file in the user's editor; what was changed holds at once."""
        from localinfer.settings import load_settings, settings_text, write_settings

        before = settings_text()
        after = self._edited(before, "settings.toml") + "\n"
        if after != before:
            write_settings(after)
            try:
                self.app.take_settings(load_settings())
            except UsageError as error:
                raise UsageError(error.message, "what held before still holds; /settings mends it") from None

    def command_theme(self, argument: str) -> None:
        self.app.switch_theme()

    def command_quit(self, argument: str) -> None:
        self.app.call_later(self.app.action_quit)

    def edit_externally(self) -> None:
        """Write the message in $VISUAL or $EDITOR."""
        self._attempt("$EDITOR", lambda: self.composer.put(self._edited(self.composer.unfolded, "message.md")))

    def _edited(self, text: str, name: str) -> str:
        """What the user's editor makes of a text. An error is raised when the screen is back: one that passes through
        `suspend` would leave the terminal without it."""
        from localinfer.tui.external_editor import edit_text

        failure: LocalinferError | None = None
        try:
            with self.app.suspend():
                try:
                    text = edit_text(text, name)
                except LocalinferError as error:
                    failure = error
        except SuspendNotSupported:
            failure = UsageError("this terminal cannot be lent to an editor", "write the file with another program")
        if failure is not None:
            raise failure
        return text

    # checks

    def _must_be_idle(self) -> None:
        if self.session.turn is not None:
            raise UsageError("the answer is still being written", "Esc stops it")

    def _must_be_left(self) -> None:
        """Another conversation takes the place of this one, which would lose what the disk does not take."""
        self._must_be_idle()
        self.session.conversation.retry()
        if error := self.session.conversation.write_error:
            raise UsageError(f"this conversation is not saved: {error}", HOW_TO_SAVE)

    def _must_be_ready(self) -> None:
        self._must_be_idle()
        self._must_have_model()

    def _last(self, role: str) -> ChatMessage:
        path = self.session.conversation.path()
        found = next((m for m in reversed(path) if m.role == role), None)
        if found is None or found.id == ROOT:
            raise UsageError("there is no such message yet")
        return found


def _shown(value: Any) -> str:
    """A sampling setting's value for people."""
    return "none" if value is None or value == () else str(value)


def _parsed(name: str, text: str) -> Any:
    """A sampling setting as it was typed -> its value. UsageError when it is no number."""
    if name == "stop":
        return [text]
    if name in ("draft", "thinking"):
        return text
    if text.lower() in ("none", "off") and name in ("seed", "max_tokens"):
        return None
    whole = name in ("top_k", "penalty_window", "seed", "max_tokens")
    try:
        return int(text) if whole else float(text)
    except ValueError as error:
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{name}: expected {kind}, found {text!r}") from error
