"""docs/app.md from the tables that the app itself uses: `python -m tests.tui.app_page` writes it, a test compares."""

from __future__ import annotations

from pathlib import Path

from localinfer.settings import DOCUMENTED
from localinfer.tui.commands import COMMANDS
from localinfer.tui.screens.help import KEYS

PAGE = Path(__file__).parents[2] / "docs" / "app.md"
HEAD = """# The terminal app

`localinfer chat MODEL` opens it on a model, `localinfer` on the list of models. It works from 40x12 to any larger
window, with a dark and a light theme, without colour where `NO_COLOR` is set, and as a chat of plain lines where
`TERM=dumb`.

![The chat](pictures/chat.svg)

The engine runs in a process of its own. When it dies (out of memory, killed), the conversation stays, the app says what
happened, and Ctrl+R loads the model again and repeats the question.

While an answer streams, the app shows it at most 20 times a second, and less often where drawing would take more than
5 % of a core: on a machine of two cores, both wanted by the engine, about 7 times, and decoding keeps 0.98 of its speed
(`python -m benchmarks.app_decode MODEL.gguf`). Keys are on screen within 19 ms (p99) meanwhile.

Where the status line has no room for everything, this order tells what stays: the state, what is not saved, a disk that
is too slow, the context, tokens per second, what happens when the context is full, paging, the time to the first token,
cached and new tokens, the speed of reading, the gain of drafting, the memory's peak.

## Conversations

Every conversation is a file that only grows: what was on screen half a second ago is on disk, whatever happens to the
program. Nothing is overwritten: editing a message or answering again makes a branch beside the old one. Left and right
step through the branches at a message, and the tree shows them all.

![Branches](pictures/branches.svg)

One copy of the program writes to a conversation; a second one that opens it is offered a copy. When the disk is full
the app says so, keeps the text, and tries again with the next message.

## Models and memory

The list of models finds localinfer's own folder, the Hugging Face cache, LM Studio's and Ollama's models, also where
their settings have moved them, with a verdict for each at the current context. What belongs to another program is never
deleted; the app says how that program does it. The plan screen shows where the memory would go, what is missing and
what would help; a repair is one key.

![Plan](pictures/plan.svg)

F3 measures the model's speed over the depth of the context and draws it beside an earlier run, which `c` chooses.

![Bench](pictures/bench.svg)

"""
SETTINGS = """## Settings

`settings.toml` in the platform's folder for settings (Linux: `~/.config/localinfer`, macOS:
`~/Library/Application Support/localinfer`, or under `LOCALINFER_HOME`); every key with its default:

"""


def page() -> str:
    keys = "\n".join(f"| {key.strip()} | {what} |" for key, what in KEYS)
    names = [f"/{c.name} {c.argument}".rstrip().replace("|", "\\|") for c in COMMANDS]
    commands = "\n".join(f"| `{name}` | {c.help} |" for name, c in zip(names, COMMANDS, strict=True))
    parts = [
        f"{HEAD}## Keys\n\n| key | does |\n|---|---|\n{keys}",
        f"## Commands\n\n| command | does |\n|---|---|\n{commands}",
        SETTINGS + f"```toml\n{DOCUMENTED}```\n",
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
