"""HelpScreen: every key and command, from the tables that define them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from localinfer.tui.commands import COMMANDS
from localinfer.tui.widgets.dialog_keys import DialogKeys

KEYS = (
    ("Enter", "send"),
    ("Ctrl+J, Alt+Enter", "new line (or Shift+Enter, where the terminal tells it apart)"),
    ("Up, Down", "earlier messages of yours, from the first and last line"),
    ("@path", "attach a text file; Tab completes"),
    ("Esc", "stop the answer; leave editing; back to the composer"),
    ("PageUp, PageDown", "scroll"),
    ("Ctrl+End", "to the end, and follow it; End too, where the text ends"),
    ("Ctrl+N", "new conversation"),
    ("Ctrl+R", "answer again, as a further branch"),
    ("Ctrl+Up", "browse messages:"),
    ("  ↑ ↓", "scroll"),
    ("  j k, Shift+↓ ↑", "next and previous message"),
    ("  ← →", "the branches at a message"),
    ("  e r c x t", "edit, answer again, copy, copy code, unfold thinking or a long paste"),
    ("  End", "to the end, and follow it"),
    ("Ctrl+T", "show or fold thinking"),
    ("Ctrl+B", "saved conversations"),
    ("Ctrl+G", "tree of branches"),
    ("Ctrl+O", "models"),
    ("F2", "plan: memory, context, KV type"),
    ("F3", "bench"),
    ("F4", "write the message in $EDITOR"),
    ("Ctrl+P", "command palette"),
    ("Ctrl+C", "copy what the mouse selected"),
    ("Ctrl+Q", "quit"),
)


class HelpScreen(ModalScreen[None]):
    """Scrolls; Esc closes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1", "dismiss(None)", "close")]

    def compose(self) -> ComposeResult:
        colours, most = self.app.theme_variables, min(20, self.app.size.width // 3)
        with Vertical(classes="dialog large"):
            yield Static("Keys and commands", classes="dialog-title")
            with VerticalScroll():
                yield Static(two_columns(KEYS, colours["accent"], most), classes="detail")
                yield Static("")
                commands = [(f"/{c.name} {c.argument}".strip(), c.help) for c in COMMANDS]
                yield Static(two_columns(commands, colours["primary"], most), classes="detail")
            yield DialogKeys(("down", "↑ ↓", "scroll"), ("escape", "Esc", "closes"))


def two_columns(rows: Sequence[tuple[str, str]], colour: str, most: int, bold: bool = True) -> Table:
    """Names and what they mean, which wraps under itself. `most`: cells of a name."""
    table = Table.grid(padding=(0, 2, 0, 0))
    names = min(max(len(name) for name, _ in rows), most)
    table.add_column(style=Style(color=colour, bold=bold), width=names, overflow="fold")
    table.add_column(ratio=1, overflow="fold")
    for name, what in rows:
        table.add_row(Text(name), Text(what))
    return table
