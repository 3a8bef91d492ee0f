"""CompletionMenu: the commands or files that what is being typed may become, above the composer."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

MAX_ROWS = 8
AROUND = 9  # rows of the window that the menu leaves free


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
        return min(len(self.rows), self._most_rows)

    @property
    def _most_rows(self) -> int:
        """A low window needs room for the composer, too."""
        return min(MAX_ROWS, max(2, self.app.size.height - AROUND))

    def render(self) -> Text:
        n_shown = self._most_rows
        first = max(0, min(self.chosen - n_shown + 1, len(self.rows) - n_shown))
        n_below = len(self.rows) - first - n_shown
        wide = max((len(value) for value, _ in self.rows), default=0)
        lines = []
        for index, (value, help_text) in enumerate(self.rows[first : first + n_shown], first):
            line = Text(" " + value.ljust(wide + 2), self.get_component_rich_style("menu--value"))
            line.append(help_text, self.get_component_rich_style("menu--help"))
            more = f" ↓ {n_below} more " if n_below > 0 and index == first + n_shown - 1 else ""
            line.truncate(self.size.width - len(more), overflow="ellipsis", pad=True)
            line.append(more, self.get_component_rich_style("menu--help"))
            if index == self.chosen:
                line.stylize(self.get_component_rich_style("menu--chosen", partial=True))
            lines.append(line)
        return Text("\n").join(lines)
