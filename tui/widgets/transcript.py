"""Transcript: the conversation on screen. One scrolling widget that draws rows, so that a streamed token costs a line.

It follows the end while the end is in sight; once the reader scrolls up it stays where they read, and says how much
came below. Of a long conversation the end is laid out first, what is above when the reader gets near.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from localinfer.tui.markdown.rows import Row, Run, row_text
from localinfer.tui.widgets.message_stack import MessageStack
from localinfer.tui.widgets.message_view import GUTTER, MessageView
from localinfer.tui.widgets.row_painter import Frame, RowPainter

NO_ROW: tuple[Row, Run] = ([], ("", ()))
BATCH_CHARS = 24_000  # laid out at a time, above what is on screen

_STYLES = (
    "em", "strong", "strike", "link", "link-target", "code-inline", "h1", "h2", "h3", "h4", "bullet", "quote",
    "quote-bar", "rule", "table-head", "code", "code-label", "code-comment", "code-keyword", "code-string",
    "code-number", "code-name", "code-builtin", "code-deleted", "name-user", "name-assistant", "name-system",
    "name-tool", "name-notice", "note", "branch", "thinking", "thinking-head", "thinking-bar", "cursor", "mark",
    "bar-user", "bar-cursor", "bar-notice",
)  # fmt: skip


class Transcript(ScrollView, can_focus=True):
    """Rows of MessageViews under each other."""

    FOCUS_ON_CLICK = False  # who clicks or selects, and then writes, writes a message: letters are keys here
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
        Binding("t", "toggle_thinking", "unfold"),
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
        self._stack = MessageStack()
        self._painter = RowPainter(self)
        self._cursor: int | None = None  # index of the message that keys act on
        self.following = True
        self._told = (True, 0)
        self._climbing = False  # on the way to the first message
        self._thumb = (0, 0)  # of the scrollbar: place in half cells, length in cells, as drawn
        self._drawn: list[tuple[Row, Run]] = []  # the rows in sight when they were looked at last

    # what is shown

    @property
    def views(self) -> list[MessageView]:
        return self._stack.views

    @property
    def text_width(self) -> int:
        return max(10, min(self._inner_width - GUTTER, self._max_width))

    @property
    def _inner_width(self) -> int:
        return self.scrollable_content_region.width or self.size.width

    @property
    def _margin(self) -> int:
        return max(0, (self._inner_width - GUTTER - self.text_width) // 2)

    def set_max_width(self, cells: int) -> None:
        self._max_width = cells
        self.render_anew()

    def show(self, views: list[MessageView], keep_position: bool = False) -> None:
        """Show these messages, from the end; with `keep_position` from the row that was on top."""
        top = self.scroll_offset.y
        self._cursor = None
        self._stack.replace(views)
        self._stack.lay_out_before(self.text_width, BATCH_CHARS, self._first_rows)
        self._resized()
        if keep_position and not self.following:
            self._scroll(min(top, self._max_y))
        else:
            self.action_follow()
        self.refresh()

    @property
    def _first_rows(self) -> int:
        """Rows to lay out before anything is drawn."""
        return self.size.height * 3 // 2

    def append(self, view: MessageView) -> None:
        self._stack.append(view, self.text_width)
        self._resized()

    def drop(self, view: MessageView) -> None:
        if view in self.views:
            self._stack.remove(view)
            self._cursor = None
            self._resized()

    def feed(self, view: MessageView, answer: str, thinking: str) -> None:
        """Streamed text for a message, which is the last one or near it."""
        view.feed(answer, thinking)
        self.changed(view)

    def changed(self, view: MessageView) -> None:
        """A message's rows changed: place those below it anew."""
        self._stack.reindex(view)
        self._resized()

    def relabel(self, view: MessageView) -> None:
        """The head or foot of a message changed."""
        view.render(self.text_width)
        self.changed(view)

    # layout

    def _resized(self) -> None:
        self._set_virtual_size(Size(self._inner_width, self._stack.n_rows))
        if self.following:
            self._scroll(self._max_y)
        self._tell()
        self._redraw()

    def _redraw(self) -> None:
        """Refresh the rows that have changed: streamed text changes the last one or two, unless they scroll."""
        drawn, self._drawn = self._drawn, [self._row(y) for y in range(*self._in_sight)]
        changed = [y for y, (new, old) in enumerate(zip_longest(self._drawn, drawn)) if new is not old and new != old]
        if len(changed) > len(self._drawn) // 2:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    @property
    def _in_sight(self) -> tuple[int, int]:
        """The first row in sight and the one behind the last."""
        return self.scroll_offset.y, self.scroll_offset.y + self.size.height

    def _row(self, y: int) -> tuple[Row, Run]:
        """A row and the bar left of it; both empty below the last."""
        found = self._stack.locate(y)
        return (found[0].row(found[1]), self._bar(*found)) if found else NO_ROW

    def _set_virtual_size(self, size: Size) -> None:
        """Only a scrollbar that comes or goes, or a new width, is a reason to lay out the whole screen."""
        overflows = size.height > self.container_size.height
        if overflows != self.show_vertical_scrollbar or size.width != self.virtual_size.width:
            self.virtual_size = size
            return
        self.set_reactive(Widget.virtual_size, size)
        self._move_thumb()

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
        self.render_anew()

    def render_anew(self) -> None:
        """Lay out for another width, the message on top staying there."""
        anchor = self._anchor()
        for view in self._stack.laid_out:
            view.render(self.text_width)
        self._stack.lay_out_before(self.text_width, 0, self._first_rows)
        self._resized()
        if not self.following and anchor:
            view, share = anchor
            span = self._stack.span(self.views.index(view))
            self._scroll(min(self._max_y, (span[0] if span else 0) + round(share * view.n_rows)))

    def _anchor(self) -> tuple[MessageView, float] | None:
        """The message on the first row, and how far into it that row is."""
        found = self._stack.locate(self.scroll_offset.y)
        return (found[0], found[1] / max(found[0].n_rows, 1)) if found else None

    # following

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        if round(old_value) != round(new_value):
            self.refresh()
        self.following = round(new_value) >= self._max_y
        self._move_thumb()
        if new_value < self.size.height and not self._stack.is_whole and not self._climbing:
            self.call_later(self._extend_up)
        self._tell()

    def _move_thumb(self) -> None:
        """Tell the scrollbar where we are. It is drawn again where that shows, which costs what twenty rows of text do:
        at half a cell, or at the end, where the thumb does nothing but shrink, at a whole one."""
        if not self.show_vertical_scrollbar:
            return
        bar, n_rows, height = self.vertical_scrollbar, max(self.virtual_size.height, 1), self.container_size.height
        bar.set_reactive(ScrollBar.window_virtual_size, n_rows)
        bar.set_reactive(ScrollBar.position, self.scroll_y)
        halves = -1 if self.following else round(2 * height * self.scroll_y / n_rows)
        thumb = (halves, height * height // n_rows)
        if thumb != self._thumb:
            self._thumb = thumb
            bar.refresh()

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        # A scrollbar that appears learns where we are: what was scrolled while it was hidden never reached it.
        if shown:
            self._thumb = (0, 0)
            self._move_thumb()

    def _extend_up(self) -> None:
        y = self.scroll_offset.y
        rows = self._stack.lay_out_before(self.text_width, BATCH_CHARS)
        if rows:
            self._resized()
            self._scroll(y + rows)

    def _tell(self) -> None:
        n_below = 0 if self.following else max(0, self._max_y - self.scroll_offset.y)
        if (self.following, n_below) != self._told:
            self._told = (self.following, n_below)
            self.post_message(self.FollowChanged(self.following, n_below))

    def action_follow(self) -> None:
        self._climbing = False
        self.following = True
        self._scroll(self._max_y)
        self._tell()

    def action_top(self) -> None:
        """To the first message. A long way is gone in steps, between which keys are heard; going elsewhere ends it."""
        self._climbing = True
        self._climb()

    def _climb(self) -> None:
        if not self._climbing:
            return
        self._stack.lay_out_before(self.text_width, 3 * BATCH_CHARS)
        self._resized()
        self.scroll_to(y=0, animate=False)
        if self._stack.is_whole:
            self._climbing = False
        else:
            self.call_later(self._climb)

    # the cursor on a message

    @property
    def cursor(self) -> MessageView | None:
        return self.views[self._cursor] if self._cursor is not None and self._cursor < len(self.views) else None

    def on_focus(self) -> None:
        if self._cursor is None and self.views:
            self._set_cursor(len(self.views) - 1)

    def on_blur(self) -> None:
        self._cursor = None
        self.refresh()

    def action_move(self, step: int) -> None:
        self._climbing = False
        if self.views:
            index = len(self.views) - 1 if self._cursor is None else self._cursor + step
            self._set_cursor(min(max(index, 0), len(self.views) - 1))

    def _set_cursor(self, index: int) -> None:
        self._cursor = index
        while (span := self._stack.span(index)) is None:
            self._extend_up()
        start, end = span
        height = self.scrollable_content_region.height
        y = self.scroll_offset.y
        if start < y or end > y + height:
            self._scroll(min(max(0, start if end - start > height or start < y else end - height), self._max_y))
        self.refresh()
        self.refresh_bindings()

    def put_cursor(self, message_id: int) -> None:
        """Onto a message by its id, when it is shown and the transcript has the focus."""
        index = next((i for i, view in enumerate(self.views) if view.id == message_id), None)
        if index is not None and self.has_focus:
            self._set_cursor(index)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with this message is among the keys."""
        view = self.cursor
        if action == "sibling":
            return view is not None and view.branch[1] > 1
        if action == "toggle_thinking":
            return view is not None and (view.is_long or bool(view.thinking))
        if action == "request":
            return view is not None and view.role != "notice"
        return super().check_action(action, parameters)

    def action_sibling(self, step: int) -> None:
        if self.cursor:
            self.post_message(self.Sibling(self.cursor.id, step))

    def action_request(self, verb: str) -> None:
        if self.cursor:
            self.post_message(self.Request(verb, self.cursor.id))

    def action_toggle_thinking(self) -> None:
        views = [self.cursor] if self.cursor else self.views[-1:]
        for view in views:
            self._toggle(view)

    def _toggle(self, view: MessageView) -> None:
        """Show or fold what a message folds: thinking, a long paste."""
        if view.is_long:
            view.unfolded = not view.unfolded
        else:
            view.thinking_open = not view.thinking_open
        self.relabel(view)

    def toggle_all_thinking(self) -> None:
        """Open every thinking part, or close them when one is open."""
        opened = not any(view.thinking_open and view.thinking for view in self.views)
        for view in self.views:
            view.thinking_open = opened
        for view in self._stack.laid_out:
            view.render(self.text_width)
        self._stack.reindex()
        self._resized()

    def on_click(self, event: events.Click) -> None:
        found = self._stack.locate(int(event.y) + self.scroll_offset.y)
        if found and any("thinking-head" in styles for _, styles in found[0].row(found[1])):
            self._toggle(found[0])

    # drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._painter.forget()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines of the widget, padding included."""
        width, top = self.region.width, self.gutter.top
        filters, background = self.get_line_filters(), self.background_colors[1]
        blank, first = Strip.blank(width, self._painter.style(())), self.scroll_offset.y - top
        frame = Frame(width, self.gutter.left + self._margin, self.gutter.left, self.size.width)
        strips, selection = [], self.text_selection
        for y in crop.line_range:
            row, bar = self._row(first + y) if y >= top else NO_ROW
            strip = self._painter.line(row, first + y, bar, frame, selection) if bar[0] else blank
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, background)
            strips.append(strip if crop.column_span == (0, width) else strip.crop(*crop.column_span))
        return strips

    def _bar(self, view: MessageView, index: int) -> Run:
        if index == view.n_rows - 1:  # the empty row that parts two messages
            return "  ", ()
        if view is self.cursor:
            return "▌ ", ("bar-cursor",)
        return ("▌ ", (f"bar-{view.role}",)) if view.role in ("user", "notice") else ("  ", ())

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        pad = " " * (self._margin + GUTTER)
        rows: list[Row] = [view.row(i) for view in self._stack.laid_out for i in range(view.n_rows)]
        text = selection.extract("\n".join((pad + row_text(row)).rstrip() for row in rows))
        return "\n".join(line.removeprefix(pad) for line in text.split("\n")), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.virtual_size.height
