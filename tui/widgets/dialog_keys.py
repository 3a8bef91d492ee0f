"""DialogKeys: the last line of a dialog, which says what its keys do; a click on one is as good as the key."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.widget import Widget

GAP = 3  # cells between two keys


class DialogKeys(Widget):
    """(key's name for Textual, its name for people, what it does); in as many lines as the width asks for."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"dialog-keys--key", "dialog-keys--what"}

    def __init__(self, *keys: tuple[str, str, str]) -> None:
        super().__init__()
        self.keys = keys

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Text:
        return Text("\n").join(self._lines(self.size.width))

    def _lines(self, width: int) -> list[Text]:
        lines: list[Text] = []
        for key, name, what in self.keys:
            entry = self._entry(key, name, what)
            if lines and lines[-1].cell_len + GAP + entry.cell_len <= width:
                lines[-1] = Text(" " * GAP).join([lines[-1], entry])
            else:
                lines.append(entry)
        return lines

    def _entry(self, key: str, name: str, what: str) -> Text:
        pressed = Style.from_meta({"key": key})
        return Text.assemble(
            (name, self.get_component_rich_style("dialog-keys--key") + pressed),
            (f" {what}", self.get_component_rich_style("dialog-keys--what") + pressed),
        )

    def on_click(self, event: events.Click) -> None:
        key = event.style.meta.get("key")
        if key:
            self.app.simulate_key(key)
