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

KEY_CELLS = 40  # at most
MAX_CHARS = 8000  # of a value


class DetailsScreen(ModalScreen[None]):
    """Rows of (key, value); a row without a key is a heading. Long values keep their lines."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,i", "dismiss(None)", "close")]

    def _line(self, key: str, value: str) -> Content:
        if not key:
            return Content(value)
        wide = min(max(len(key) for key, _ in self.rows), KEY_CELLS) + 2
        return Content.assemble((visible(key).ljust(wide), "$muted"), visible(value[:MAX_CHARS]))

    def __init__(self, title: str, rows: list[tuple[str, str]]) -> None:
        super().__init__()
        self.heading, self.rows = title, rows

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large"):
            yield Static(Content(visible(self.heading)), classes="dialog-title")
            with VerticalScroll():
                for key, value in self.rows:
                    yield Static(self._line(key, value), classes="detail" if key else "detail-heading")
            yield Static("↑ ↓ scroll · Esc closes", classes="dialog-keys")
