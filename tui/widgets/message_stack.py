"""MessageStack: views under each other, and the rows of each. The end is laid out first, the rest on demand."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from localinfer.tui.widgets.message_view import MessageView


class MessageStack:
    """`laid_out` are the views from the first that has rows on; those before it wait until the reader gets near."""

    def __init__(self) -> None:
        self.views: list[MessageView] = []
        self._n_waiting = 0
        self._ends: list[int] = []  # row after the last of each laid out view

    @property
    def laid_out(self) -> list[MessageView]:
        return self.views[self._n_waiting :]

    @property
    def is_whole(self) -> bool:
        return not self._n_waiting

    @property
    def n_rows(self) -> int:
        return self._ends[-1] if self._ends else 0

    def replace(self, views: list[MessageView]) -> None:
        self.views, self._n_waiting, self._ends = views, len(views), []

    def append(self, view: MessageView, width: int) -> None:
        view.render(width)
        self.views.append(view)
        self._ends.append(self.n_rows + view.n_rows)

    def remove(self, view: MessageView) -> None:
        self.views.remove(view)
        self.reindex()

    def lay_out_before(self, width: int, n_chars: int, n_rows: int = 0) -> int:
        """Lay out further views above, of so much text or so many rows, whichever is more; how many rows that gave."""
        done_chars = rows = 0
        while self._n_waiting and (done_chars < n_chars or rows < n_rows):
            view = self.views[self._n_waiting - 1]
            view.render(width)
            self._n_waiting -= 1
            rows += view.n_rows
            done_chars += len(view.text) + 200
        self.reindex()
        return rows

    def reindex(self, changed: MessageView | None = None) -> None:
        """Rows changed, from this view on where one is given."""
        start = max(self.views.index(changed) - self._n_waiting, 0) if changed else 0
        heights = [view.n_rows for view in self.views[self._n_waiting + start :]]
        first = self._ends[start - 1] if start else 0
        self._ends[start:] = list(accumulate(heights, initial=first))[1:]

    def locate(self, y: int) -> tuple[MessageView, int] | None:
        """The view at a row, and the row's place in it."""
        index = bisect_right(self._ends, y)
        if y < 0 or index >= len(self._ends):
            return None
        return self.views[self._n_waiting + index], y - (self._ends[index - 1] if index else 0)

    def span(self, index: int) -> tuple[int, int] | None:
        """First row of a view and the row after its last; None while it waits."""
        place = index - self._n_waiting
        return (self._ends[place - 1] if place else 0, self._ends[place]) if place >= 0 else None
