"""DetailsScreen: what a model file says about itself."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localinfer.tui.markdown.rows import visible


class DetailsScreen(ModalScreen[None]):
    """Rows of (key, value); long values keep their lines."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,i", "dismiss(None)", "close")]

    def __init__(self, title: str, rows: list[tuple[str, str]]) -> None:
        super().__init__()
        self.heading, self.rows = title, rows

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large"):
            yield Static(Content(visible(self.heading)), classes="dialog-title")
            with VerticalScroll():
                for key, value in self.rows:
                    line = Content.assemble((visible(key), "$primary"), "  ", visible(value[:4000]))
                    yield Static(line, classes="detail")
            yield Static("Esc closes", classes="dialog-keys")
