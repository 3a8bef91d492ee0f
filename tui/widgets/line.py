"""Line: a widget of one row of text, which keeps the styles it writes with. Textual forgets those with every change."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual.widget import Widget


class Line(Widget):
    """`PART` is what the names of its component classes begin with."""

    PART: ClassVar[str] = ""

    def __init__(self, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._kept: dict[str, Style] = {}

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._kept.clear()

    def style(self, name: str) -> Style:
        if name not in self._kept:
            self._kept[name] = self.get_component_rich_style(f"{self.PART}--{name}")
        return self._kept[name]
