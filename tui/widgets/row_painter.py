"""RowPainter: rows of a conversation as strips of the screen. Nearly all rows of a frame were in the last one too, so a
row is made into a strip once, and what Textual keeps with a strip (its escape sequences, its cuts) is kept with it."""

from __future__ import annotations

from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from localinfer.tui.markdown.rows import Row, Run, Styles

MAX_STRIPS = 2000  # kept: many times what a screen shows


class Frame(NamedTuple):
    """Cells of the whole line; left of the text, padding included; of the padding alone; of the line without it."""

    width: int
    left: int
    gutter: int
    inner: int


class RowPainter:
    """Knows the colours of a widget whose component classes are `md--<style>`."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._styles: dict[Styles, Style] = {}
        self._strips: dict[int, tuple[Row, object, Strip]] = {}  # by the id of the row, which it holds

    def forget(self) -> None:
        """The colours changed."""
        self._styles.clear()
        self._strips.clear()

    def style(self, styles: Styles) -> Style:
        found = self._styles.get(styles)
        if found is None:
            found = self._widget.rich_style
            for name in styles:
                found += self._widget.get_component_rich_style(f"md--{name}", partial=True)
            self._styles[styles] = found
        return found

    def line(self, row: Row, y: int, bar: Run, frame: Frame, selection: Selection | None) -> Strip:
        """The strip of a row that is at `y`; the kept one where nothing that shows in it has changed."""
        if selection is not None:
            return self._strip(row, y, bar, frame, selection)
        kept, looks = self._strips.get(id(row)), (y, bar, frame)
        if kept is None or kept[0] is not row or kept[1] != looks:
            if len(self._strips) > MAX_STRIPS:
                self._strips.clear()
            kept = self._strips[id(row)] = (row, looks, self._strip(row, y, bar, frame, None))
        return kept[2]

    def _strip(self, row: Row, y: int, bar: Run, frame: Frame, selection: Selection | None) -> Strip:
        """A row between its margins, the selected part coloured; every cell of its text knows its place."""
        ground = self.style(())
        runs = [(" " * (frame.left - frame.gutter), ()), bar, *row]
        strip = Strip([Segment(text, self.style(styles)) for text, styles in runs if text])
        strip = strip.adjust_cell_length(frame.inner, ground)
        span = selection.get_span(y) if selection else None
        if span is not None:
            strip = self._selected(strip, *span)
        margin = Strip.blank(frame.gutter, ground)
        return Strip.join([margin, strip.apply_offsets(0, y)]).adjust_cell_length(frame.width, ground)

    def _selected(self, strip: Strip, start: int, end: int) -> Strip:
        """Colour the selected part; positions are characters of the row."""
        style = self._widget.screen.get_component_rich_style("screen--selection")
        end = strip.cell_length if end == -1 else end
        left, middle, right = strip.divide([start, end, strip.cell_length]) if start < end else (strip, None, None)
        if middle is None or right is None:
            return strip
        coloured = Strip([Segment(s.text, (s.style or Style()) + style, s.control) for s in middle])
        return Strip.join([left, coloured, right])
