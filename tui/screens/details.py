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
from localinfer.tui.screens.help import two_columns
from localinfer.tui.widgets.dialog_keys import DialogKeys

KEY_CELLS = 40  # at most
MAX_CHARS = 8000  # of a value


class DetailsScreen(ModalScreen[None]):
    """Sections of (key, value) rows; a row without a key is a heading. Text of many lines has the whole width."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,i", "dismiss(None)", "close")]

    def __init__(self, title: str, rows: list[tuple[str, str]]) -> None:
        super().__init__()
        self.heading, self.rows = title, rows

    def compose(self) -> ComposeResult:
        muted = self.app.theme_variables["muted"]
        with Vertical(classes="dialog large"):
            yield Static(Content(visible(self.heading)), classes="dialog-title")
            with VerticalScroll():
                for heading, rows in self._sections():
                    yield Static(Content(heading), classes="detail-heading")
                    short = [(key, value) for key, value in rows if "\n" not in value]
                    if short:
                        yield Static(two_columns(short, muted, self._key_cells, bold=False), classes="detail")
                    for key, value in rows:
                        if "\n" in value:
                            yield Static(Content.assemble((key + "\n", muted), value), classes="detail")
            yield DialogKeys(("down", "↑ ↓", "scroll"), ("escape", "Esc", "closes"))

    @property
    def _key_cells(self) -> int:
        width = self.app.size.width
        return min(KEY_CELLS, width // 3 if width >= 60 else width // 2 - 4)

    def _sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        sections: list[tuple[str, list[tuple[str, str]]]] = []
        for key, value in self.rows:
            if not key:
                sections.append((value, []))
            else:
                sections[-1][1].append((visible(key), visible(value[:MAX_CHARS])))
        return sections
