"""Choice: one line of a form: a key, a name, and the values of which the key (or a click) takes the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

KEY, NAME = 4, 13  # cells


class Choice(Widget):
    """Where all values fit they are shown beside each other, else the chosen one alone."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"choice--key", "choice--name", "choice--value", "choice--chosen"}

    values: reactive[Sequence[str]] = reactive[Sequence[str]](())
    chosen = reactive("")

    class Asked(Message):
        """The next value is wanted."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

    def __init__(self, key: str, name: str, values: Sequence[str], id: str) -> None:
        super().__init__(id=id)
        self.key, self.label = key, name
        self.set_reactive(Choice.values, tuple(values))
        self.set_reactive(Choice.chosen, values[0])

    def step(self) -> str:
        """Take the next value; it."""
        values = list(self.values)
        self.chosen = values[(values.index(self.chosen) + 1) % len(values)] if self.chosen in values else values[0]
        return self.chosen

    def on_click(self) -> None:
        self.post_message(self.Asked(self))

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return 1

    def render(self) -> Text:
        values = [self.chosen, *self.values] if self.chosen not in self.values else list(self.values)
        if KEY + NAME + sum(len(value) + 2 for value in values) > self.size.width:
            values = [self.chosen]
        text = self._run(self.key.ljust(KEY), "key") + self._run(self.label.ljust(NAME - 1), "name")
        for value in values:
            text += self._run(f" {value} ", "chosen" if value == self.chosen else "value")
        return text

    def _run(self, text: str, name: str) -> Text:
        return Text(text, self.get_component_rich_style(f"choice--{name}"))
