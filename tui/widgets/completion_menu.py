"""CompletionMenu: the commands or files that what is being typed may become, above the composer."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

MAX_ROWS = 8


class CompletionMenu(Widget):
    """Rows of (value, help); one is chosen. Hidden while empty; never takes the focus."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"menu--value", "menu--help", "menu--chosen"}

    rows: reactive[list[tuple[str, str]]] = reactive(list, layout=True)
    chosen = reactive(0)

    def watch_rows(self, rows: list[tuple[str, str]]) -> None:
        self.chosen = 0
        self.display = bool(rows)

    def move(self, step: int) -> None:
        if self.rows:
            self.chosen = (self.chosen + step) % len(self.rows)

    @property
    def value(self) -> str:
        return self.rows[self.chosen][0] if self.rows else ""

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return min(len(self.rows), MAX_ROWS)

    def render(self) -> Text:
        first = max(0, min(self.chosen - MAX_ROWS + 1, len(self.rows) - MAX_ROWS))
        wide = max((len(value) for value, _ in self.rows), default=0)
        lines = []
        for index, (value, help_text) in enumerate(self.rows[first : first + MAX_ROWS], first):
            line = Text(" " + value.ljust(wide + 2), self.get_component_rich_style("menu--value"))
            line.append(help_text, self.get_component_rich_style("menu--help"))
            line.truncate(self.size.width, overflow="ellipsis", pad=True)
            if index == self.chosen:
                line.stylize(self.get_component_rich_style("menu--chosen", partial=True))
            lines.append(line)
        return Text("\n").join(lines)
