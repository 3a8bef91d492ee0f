"""Containers that draw nothing of their own. Textual draws what lies below other widgets too, in every frame: here that
is one strip for all rows."""

from __future__ import annotations

from textual.containers import Container, Horizontal, Vertical
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


def ground_lines(widget: Widget, crop: Region) -> list[Strip]:
    """`render_lines` of a widget without border, padding or content."""
    strip = Strip.blank(crop.width, widget.visual_style.rich_style)
    for line_filter in widget.get_line_filters():
        strip = strip.apply_filter(line_filter, widget.background_colors[1])
    return [strip] * crop.height


class Layers(Container):
    render_lines = ground_lines


class Columns(Horizontal):
    render_lines = ground_lines


class Rows(Vertical):
    render_lines = ground_lines
