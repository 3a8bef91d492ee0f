"""Composer: where messages are written. Enter sends, Ctrl+J breaks the line, a paste never sends."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import TextArea

CHIP_LINES, CHIP_CHARS = 12, 1500  # a paste above one of these is folded to a chip


class Composer(TextArea):
    """A text area that grows with its text and remembers what was sent."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "send", priority=False),
        Binding("end", "end", "to the end", show=False),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "new line", key_display="^j", show=False),
    ]

    class Sent(Message):
        """The text to send, chips unfolded."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class AtEnd(Message):
        """End was pressed where the text ends."""

    class MenuKey(Message):
        """A key for the completion menu: up, down, tab, enter, escape."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, id: str | None = None) -> None:
        super().__init__(
            "", id=id, soft_wrap=True, show_line_numbers=False, compact=True, highlight_cursor_line=False,
            placeholder="Message",
        )  # fmt: skip
        self.cursor_blink = False  # each blink is a frame, twice a second, also while a model wants every core
        self.menu_open = False
        self._styled: object = None  # the theme that has its styles
        self._chips: dict[str, str] = {}
        self._sent: list[str] = []
        self._at = 0  # place in _sent while stepping through it
        self._draft = ""

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styled = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """As TextArea does, which works all its styles out anew for each frame: half the time that a key takes."""
        if self._styled is not self._theme:
            self._styled = self._theme
            return super().render_lines(crop)
        return Widget.render_lines(self, crop)

    def remember(self, texts: list[str]) -> None:
        """The history that Up steps through, oldest first."""
        self._sent = list(texts)
        self._at = len(self._sent)

    def put(self, text: str) -> None:
        """Replace the text, cursor at its end."""
        self.text = text
        self.move_cursor(self.document.end)

    @property
    def unfolded(self) -> str:
        """The text with every chip replaced by what it stands for."""
        text = self.text
        for chip, content in self._chips.items():
            text = text.replace(chip, content)
        return text

    def action_send(self) -> None:
        text = self.unfolded.strip()
        if not text:
            return
        self._sent.append(self.text.strip() if not self._chips else text)
        self._at = len(self._sent)
        self._chips.clear()
        self.text = ""
        self.post_message(self.Sent(text))

    def action_end(self) -> None:
        """To the end of the line; at the end of all text the key is the conversation's."""
        if self.cursor_location == self.document.end:
            self.post_message(self.AtEnd())
        self.action_cursor_line_end()

    def action_newline(self) -> None:
        self.insert("\n")

    async def _on_key(self, event: events.Key) -> None:
        if self.menu_open and event.key in ("up", "down", "tab", "enter", "escape"):
            self._take(event)
            self.post_message(self.MenuKey(event.key))
        elif event.key == "enter":
            self._take(event)
            self.action_send()
        elif event.key == "up" and self.cursor_location[0] == 0 and self._sent and self._on_first_row():
            self._take(event)
            self._step(-1)
        elif event.key == "down" and self._at < len(self._sent) and self.cursor_at_last_line:
            self._take(event)
            self._step(1)
        else:
            await super()._on_key(event)

    @staticmethod
    def _take(event: events.Key) -> None:
        event.prevent_default()
        event.stop()

    def _on_first_row(self) -> bool:
        """Up moves within a long wrapped line first."""
        return self.wrapped_document.location_to_offset(self.cursor_location).y == 0

    def _step(self, step: int) -> None:
        if self._at == len(self._sent):
            self._draft = self.text
        self._at = min(max(self._at + step, 0), len(self._sent))
        self.put(self._draft if self._at == len(self._sent) else self._sent[self._at])

    async def _on_paste(self, event: events.Paste) -> None:
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        n_lines = len(text.splitlines())
        if n_lines <= CHIP_LINES and len(text) <= CHIP_CHARS:
            event = events.Paste(text)
            await super()._on_paste(event)
            return
        event.prevent_default()
        event.stop()
        lines = f"{n_lines:,} line{'s' * (n_lines != 1)}"
        chip = f"[paste {len(self._chips) + 1}: {lines}, {len(text):,} characters]"
        self._chips[chip] = text
        self.insert(chip)
