"""KeyBar: the keys that do something now, and what. One row, drawn by one widget: Textual's Footer has a widget a key,
and mounts and styles all of them again when the focus changes, which took a sixth of the app's start."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.screen import Screen

from localinfer.tui.widgets.line import Line


class Key(NamedTuple):
    name: str  # as Textual calls it
    shown: str
    does: str
    enabled: bool

    @property
    def width(self) -> int:
        return cell_len(f" {self.shown} {self.does} ")


class KeyBar(Line):
    """Where they do not all fit, the last one, which leaves the app, stays."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"keys--key", "keys--does", "keys--pointed"}
    PART = "keys"

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[Key] = []
        self._pointed: Key | None = None  # under the mouse

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._look)
        self._look(self.screen)

    def _look(self, screen: Screen[Any]) -> None:
        """Which keys act depends on the focus and on what is going on."""
        keys: dict[str, Key] = {}  # by what they do: of several keys the first is shown
        for _, binding, enabled, _ in screen.active_bindings.values():
            if binding.show:
                shown = self.app.get_key_display(binding)
                keys.setdefault(binding.action, Key(binding.key, shown, binding.description, enabled))
        if list(keys.values()) != self._keys and screen.app.app_focus:
            self._keys = list(keys.values())
            self.refresh()

    @property
    def shown(self) -> list[Key]:
        """The keys that fit."""
        keys = self._keys[:]
        while len(keys) > 2 and sum(key.width for key in keys) > self.size.width:
            del keys[-2]
        return keys

    def render(self) -> Text:
        return Text.assemble(*(part for key in self.shown for part in self._parts(key)))

    def _parts(self, key: Key) -> list[tuple[str, Style]]:
        looks = Style(dim=not key.enabled, bgcolor=self.style("pointed").bgcolor if key == self._pointed else None)
        return [(f" {key.shown} ", self.style("key") + looks), (f"{key.does} ", self.style("does") + looks)]

    def key_at(self, x: int) -> Key | None:
        """The key that is drawn at a column of this widget."""
        end = self.gutter.left
        for key in self.shown:
            start, end = end, end + key.width
            if start <= x < end:
                return key
        return None

    def on_mouse_down(self, event: events.MouseDown) -> None:
        key = self.key_at(event.x)
        if key is not None and key.enabled:
            self.app.simulate_key(key.name)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._point(self.key_at(event.x))

    def on_leave(self) -> None:
        self._point(None)

    def _point(self, key: Key | None) -> None:
        if key != self._pointed:
            self._pointed = key
            self.refresh()
