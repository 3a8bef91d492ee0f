"""HelpScreen: every key and command, from the tables that define them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localinfer.tui.commands import COMMANDS

KEY_CELLS = 18
KEYS = (
    ("Enter", "send"),
    ("Ctrl+J, Alt+Enter", "new line (or Shift+Enter, where the terminal tells it apart)"),
    ("Up, Down", "earlier messages of yours, from the first and last line"),
    ("@path", "attach a text file; Tab completes"),
    ("Esc", "stop the answer; leave editing; back to the composer"),
    ("PageUp, PageDown", "scroll"),
    ("Ctrl+End", "to the end, and follow it"),
    ("Ctrl+N", "new conversation"),
    ("Ctrl+R", "answer again, as a further branch"),
    ("Ctrl+Up", "browse messages:"),
    ("  ↑ ↓", "scroll"),
    ("  j k, Shift+↓ ↑", "next and previous message"),
    ("  ← →", "the branches at a message"),
    ("  e r c x t", "edit, answer again, copy, copy code, thinking"),
    ("  End", "to the end, and follow it"),
    ("Ctrl+T", "show or fold thinking"),
    ("Ctrl+B", "saved conversations"),
    ("Ctrl+G", "tree of branches"),
    ("Ctrl+O", "models"),
    ("F2", "plan: memory, context, KV type"),
    ("F3", "bench"),
    ("F4", "write the message in $EDITOR"),
    ("Ctrl+P", "command palette"),
    ("Ctrl+Q", "quit"),
)


class HelpScreen(ModalScreen[None]):
    """Scrolls; Esc closes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1", "dismiss(None)", "close")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large"):
            yield Static("Keys and commands", classes="dialog-title")
            with VerticalScroll():
                for key, what in KEYS:
                    yield Static(Content.assemble((key.ljust(KEY_CELLS), "bold $accent"), "  ", what), classes="detail")
                yield Static("")
                for command in COMMANDS:
                    name = f"/{command.name} {command.argument}".strip()
                    yield Static(
                        Content.assemble((name.ljust(KEY_CELLS), "bold $primary"), "  ", command.help), classes="detail"
                    )
            yield Static("Esc closes", classes="dialog-keys")
