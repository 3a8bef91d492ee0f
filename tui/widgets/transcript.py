"""Transcript: the conversation on screen. One scrolling widget that draws rows, so that a streamed token costs a line.

It follows the end while the end is in sight; once the reader scrolls up it stays where they read, and says how much
came below. Of a long conversation the end is laid out first, what is above when the reader gets near.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from localinfer.tui.markdown.rows import Row, Run, Styles, row_text
from localinfer.tui.widgets.message_view import GUTTER, MessageView

BATCH_CHARS = 24_000  # laid out at a time, above what is on screen
MAX_STRIPS = 2000  # kept: many times what a screen shows

_STYLES = (
    "em", "strong", "strike", "link", "link-target", "code-inline", "h1", "h2", "h3", "h4", "bullet", "quote",
    "quote-bar", "rule", "table-head", "code", "code-label", "code-comment", "code-keyword", "code-string",
    "code-number", "code-name", "code-builtin", "code-deleted", "name-user", "name-assistant", "name-system",
    "name-tool", "name-notice", "note", "branch", "thinking", "thinking-head", "thinking-bar", "cursor", "mark",
    "bar-user", "bar-cursor", "bar-notice",
)  # fmt: skip


class Transcript(ScrollView, can_focus=True):
    """Rows of MessageViews under each other."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"md--{name}" for name in _STYLES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,shift+down", "move(1)", "next", show=False),
        Binding("k,shift+up", "move(-1)", "previous", show=False),
        Binding("left,h", "sibling(-1)", "‹ branch", key_display="←"),
        Binding("right,l", "sibling(1)", "branch ›", key_display="→"),
        Binding("e", "request('edit')", "edit"),
        Binding("r", "request('regenerate')", "again"),
        Binding("c", "request('copy')", "copy"),
        Binding("x", "request('copy_code')", "copy code"),
        Binding("t", "toggle_thinking", "thinking"),
        Binding("end,G", "follow", "end", show=False),
        Binding("home,g", "top", "top", show=False),
    ]

    class Request(Message):
        """Something to do with one message: edit, regenerate, copy, copy_code."""

        def __init__(self, verb: str, message_id: int) -> None:
            super().__init__()
            self.verb, self.message_id = verb, message_id

    class Sibling(Message):
        """Step to the next (+1) or previous (-1) branch at a message."""

        def __init__(self, message_id: int, step: int) -> None:
            super().__init__()
            self.message_id, self.step = message_id, step

    class FollowChanged(Message):
        """Whether the end is in sight, and how many rows are below where it is not."""

        def __init__(self, following: bool, n_below: int) -> None:
            super().__init__()
            self.following, self.n_below = following, n_below

    def __init__(self, max_width: int = 96, id: str | None = None) -> None:
        """max_width: of the text, in cells; longer lines are hard to read."""
        super().__init__(id=id)
        self._max_width = max_width
        self._views: list[MessageView] = []
        self._n_waiting = 0  # views at the front that are not laid out yet
        self._ends: list[int] = []  # row after the last of each laid out view
        self._style_cache: dict[Styles, Style] = {}
        self._strip_cache: dict[int, tuple[Row, object, Strip]] = {}  # by the id of the row, which it holds
        self._cursor: int | None = None  # index of the message that keys act on
        self.following = True
        self._told = (True, 0)

    # what is shown

    @property
    def views(self) -> list[MessageView]:
        return self._views

    @property
    def text_width(self) -> int:
        return max(10, min(self._inner_width - GUTTER, self._max_width))

    @property
    def _inner_width(self) -> int:
        return self.scrollable_content_region.width or self.size.width

    @property
    def _margin(self) -> int:
        return max(0, (self._inner_width - GUTTER - self.text_width) // 2)

    def show(self, views: list[MessageView], keep_position: bool = False) -> None:
        """Show these messages, from the end; with `keep_position` from the row that was on top."""
        top = self.scroll_offset.y
        self._views, self._cursor = views, None
        self._lay_out_tail()
        if keep_position and not self.following:
            self._scroll(min(top, self._max_y))
        else:
            self.action_follow()
        self.refresh()

    def append(self, view: MessageView) -> None:
        view.render(self.text_width)
        self._views.append(view)
        self._ends.append((self._ends[-1] if self._ends else 0) + view.n_rows)
        self._resized()

    def drop(self, view: MessageView) -> None:
        if view in self._views:
            self._views.remove(view)
            self._cursor = None
            self._reindex()

    def feed(self, view: MessageView, answer: str, thinking: str) -> None:
        """Streamed text for a message, which is the last one or near it."""
        view.feed(answer, thinking)
        self.changed(view)

    def changed(self, view: MessageView) -> None:
        """A message's rows changed: place those below it anew."""
        self._reindex(self._views.index(view) - self._n_waiting)

    def relabel(self, view: MessageView) -> None:
        """The head or foot of a message changed."""
        view.render(self.text_width)
        self.changed(view)

    # layout

    def _lay_out_tail(self) -> None:
        """Lay out messages from the end until the batch is full, or a screen and a half."""
        self._n_waiting = len(self._views)
        self._load_before(BATCH_CHARS, self.size.height * 3 // 2)
        self._reindex()

    def _load_before(self, n_chars: int, n_rows: int = 0) -> int:
        """Lay out further messages above; how many rows that gave."""
        done_chars = rows = 0
        while self._n_waiting and (done_chars < n_chars or rows < n_rows):
            view = self._views[self._n_waiting - 1]
            view.render(self.text_width)
            self._n_waiting -= 1
            rows += view.n_rows
            done_chars += len(view.text) + 200
        return rows

    def _reindex(self, start: int = 0) -> None:
        start = max(start, 0)
        heights = [view.n_rows for view in self._views[self._n_waiting + start :]]
        first = self._ends[start - 1] if start else 0
        self._ends[start:] = list(accumulate(heights, initial=first))[1:]
        self._resized()

    def _resized(self) -> None:
        n_rows = self._ends[-1] if self._ends else 0
        self._set_virtual_size(Size(self._inner_width, n_rows))
        if self.following:
            self._scroll(self._max_y)
        self._tell()
        self.refresh()

    def _set_virtual_size(self, size: Size) -> None:
        """Only a scrollbar that comes or goes, or a new width, is a reason to lay out the whole screen."""
        overflows = size.height > self.container_size.height
        if overflows != self.show_vertical_scrollbar or size.width != self.virtual_size.width:
            self.virtual_size = size
            return
        self.set_reactive(Widget.virtual_size, size)
        if overflows:
            self.vertical_scrollbar.window_virtual_size = size.height

    @property
    def _max_y(self) -> int:
        return max(0, self.virtual_size.height - self.scrollable_content_region.height)

    def _scroll(self, y: int) -> None:
        # max_scroll_y lags behind virtual_size until the next layout; the row wanted is known already
        self.set_reactive(type(self).scroll_target_y, y)
        self.scroll_y = y

    def validate_scroll_y(self, value: float) -> float:
        return min(max(value, 0), max(self.max_scroll_y, self._max_y))

    def on_resize(self, event: events.Resize) -> None:
        anchor = self._anchor()
        for view in self._views[self._n_waiting :]:
            view.render(self.text_width)
        self._load_before(0, event.size.height * 3 // 2)
        self._reindex()
        if not self.following and anchor:
            view, share = anchor
            index = self._views.index(view) - self._n_waiting
            start = self._ends[index - 1] if index else 0
            self._scroll(min(self._max_y, start + round(share * view.n_rows)))

    def _anchor(self) -> tuple[MessageView, float] | None:
        """The message on the first row, and how far into it that row is."""
        found = self._locate(self.scroll_offset.y)
        return (found[0], found[1] / max(found[0].n_rows, 1)) if found else None

    def _locate(self, y: int) -> tuple[MessageView, int] | None:
        """The message at a row, and the row's place in it."""
        index = bisect_right(self._ends, y)
        if y < 0 or index >= len(self._ends):
            return None
        return self._views[self._n_waiting + index], y - (self._ends[index - 1] if index else 0)

    # following

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.following = round(new_value) >= self._max_y
        if new_value < self.size.height and self._n_waiting:
            self.call_later(self._extend_up)
        self._tell()

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        # A scrollbar that appears learns where we are: what was scrolled while it was hidden never reached it.
        if shown:
            self.vertical_scrollbar.position = self.scroll_y

    def _extend_up(self) -> None:
        rows = self._load_before(BATCH_CHARS)
        if rows:
            y = self.scroll_offset.y
            self._reindex()
            self._scroll(y + rows)

    def _tell(self) -> None:
        n_below = 0 if self.following else max(0, self._max_y - self.scroll_offset.y)
        if (self.following, n_below) != self._told:
            self._told = (self.following, n_below)
            self.post_message(self.FollowChanged(self.following, n_below))

    def action_follow(self) -> None:
        self.following = True
        self._scroll(self._max_y)
        self._tell()

    def action_top(self) -> None:
        if self._n_waiting:
            self._load_before(1 << 60)
            self._reindex()
        self.scroll_to(y=0, animate=False)

    # the cursor on a message

    @property
    def cursor(self) -> MessageView | None:
        return self._views[self._cursor] if self._cursor is not None and self._cursor < len(self._views) else None

    def on_focus(self) -> None:
        if self._cursor is None and self._views:
            self._set_cursor(len(self._views) - 1)

    def on_blur(self) -> None:
        self._cursor = None
        self.refresh()

    def action_move(self, step: int) -> None:
        if self._views:
            index = len(self._views) - 1 if self._cursor is None else self._cursor + step
            self._set_cursor(min(max(index, 0), len(self._views) - 1))

    def _set_cursor(self, index: int) -> None:
        self._cursor = index
        while index < self._n_waiting:
            self._extend_up()
        end = self._ends[index - self._n_waiting]
        start = end - self._views[index].n_rows
        height = self.scrollable_content_region.height
        y = self.scroll_offset.y
        if start < y or end > y + height:
            self._scroll(min(max(0, start if end - start > height or start < y else end - height), self._max_y))
        self.refresh()
        self.refresh_bindings()

    def put_cursor(self, message_id: int) -> None:
        """Onto a message by its id, when it is shown and the transcript has the focus."""
        index = next((i for i, view in enumerate(self._views) if view.id == message_id), None)
        if index is not None and self.has_focus:
            self._set_cursor(index)

    def action_sibling(self, step: int) -> None:
        if self.cursor:
            self.post_message(self.Sibling(self.cursor.id, step))

    def action_request(self, verb: str) -> None:
        if self.cursor:
            self.post_message(self.Request(verb, self.cursor.id))

    def action_toggle_thinking(self) -> None:
        views = [self.cursor] if self.cursor else self._views[-1:]
        for view in views:
            view.thinking_open = not view.thinking_open
            self.relabel(view)

    def toggle_all_thinking(self) -> None:
        """Open every thinking part, or close them when one is open."""
        opened = not any(view.thinking_open and view.thinking for view in self._views)
        for view in self._views:
            view.thinking_open = opened
        for view in self._views[self._n_waiting :]:
            view.render(self.text_width)
        self._reindex()

    def on_click(self, event: events.Click) -> None:
        found = self._locate(int(event.y) + self.scroll_offset.y)
        if found and any("thinking-head" in styles for _, styles in found[0].row(found[1])):
            found[0].thinking_open = not found[0].thinking_open
            self.relabel(found[0])

    # drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._style_cache.clear()
        self._strip_cache.clear()

    def _style(self, styles: Styles) -> Style:
        found = self._style_cache.get(styles)
        if found is None:
            found = self.rich_style
            for name in styles:
                found += self.get_component_rich_style(f"md--{name}", partial=True)
            self._style_cache[styles] = found
        return found

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines of the widget, padding included. While text streams nearly all rows only change their place: a row is
        made into a strip once, and what Textual keeps with a strip (its escape sequences, its cuts) is kept with it."""
        width, top, ground = self.region.width, self.gutter.top, self._style(())
        filters, background = self.get_line_filters(), self.background_colors[1]
        blank, first = Strip.blank(width, ground), self.scroll_offset.y - top
        frame = (width, self.gutter.left + self._margin)
        selecting = self.text_selection is not None
        strips = []
        for y in crop.line_range:
            found = self._locate(first + y) if y >= top else None
            strip = self._line(first + y, *found, frame, selecting) if found else blank
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, background)
            strips.append(strip if crop.column_span == (0, width) else strip.crop(*crop.column_span))
        return strips

    def _line(self, y: int, view: MessageView, index: int, frame: tuple[int, int], selecting: bool) -> Strip:
        """The strip of a message's row, which is at `y`; the kept one where nothing that shows in it has changed."""
        row, looks = view.row(index), (y, self._bar(view, index), frame)
        if selecting:
            return self._strip(row, *looks)
        kept = self._strip_cache.get(id(row))
        if kept is None or kept[0] is not row or kept[1] != looks:
            if len(self._strip_cache) > MAX_STRIPS:
                self._strip_cache.clear()
            kept = self._strip_cache[id(row)] = (row, looks, self._strip(row, *looks))
        return kept[2]

    def _strip(self, row: Row, y: int, bar: Run, frame: tuple[int, int]) -> Strip:
        """A row between its margins, the selected part coloured; every cell of its text knows its place."""
        width, left = frame
        runs = [(" " * (left - self.gutter.left), ()), bar, *row]
        strip = Strip([Segment(text, self._style(styles)) for text, styles in runs if text])
        strip = strip.adjust_cell_length(self.size.width, self._style(()))
        span = self.text_selection.get_span(y) if self.text_selection else None
        if span is not None:
            strip = self._selected(strip, *span)
        margin = Strip.blank(self.gutter.left, self._style(()))
        return Strip.join([margin, strip.apply_offsets(0, y)]).adjust_cell_length(width, self._style(()))

    def _bar(self, view: MessageView, index: int) -> Run:
        if index == view.n_rows - 1:  # the empty row that parts two messages
            return "  ", ()
        if view is self.cursor:
            return "▌ ", ("bar-cursor",)
        return ("▌ ", (f"bar-{view.role}",)) if view.role in ("user", "notice") else ("  ", ())

    def _selected(self, strip: Strip, start: int, end: int) -> Strip:
        """Colour the selected part; positions are characters of the row."""
        style = self.screen.get_component_rich_style("screen--selection")
        end = strip.cell_length if end == -1 else end
        left, middle, right = strip.divide([start, end, strip.cell_length]) if start < end else (strip, None, None)
        if middle is None or right is None:
            return strip
        coloured = Strip([Segment(s.text, (s.style or Style()) + style, s.control) for s in middle])
        return Strip.join([left, coloured, right])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        pad = " " * (self._margin + GUTTER)
        rows: list[Row] = [view.row(i) for view in self._views[self._n_waiting :] for i in range(view.n_rows)]
        text = selection.extract("\n".join((pad + row_text(row)).rstrip() for row in rows))
        return "\n".join(line.removeprefix(pad) for line in text.split("\n")), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.virtual_size.height
