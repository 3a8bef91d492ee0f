"""Stop strings in a stream: text is held back exactly as long as it may still become one."""

from __future__ import annotations

from collections.abc import Sequence


class StopScanner:
    """push(text) -> text that is safe to show; `stopped` once a stop string was found. It ends before the string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(stops)
        self.held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        buffer = self.held + text
        found = min((at for stop in self.stops if (at := buffer.find(stop)) >= 0), default=-1)
        if found >= 0:
            self.stopped, self.held = True, ""
            return buffer[:found]
        keep = self._could_become_stop(buffer)
        self.held = buffer[len(buffer) - keep :]
        return buffer[: len(buffer) - keep]

    def flush(self) -> str:
        """What was held, when no more text comes."""
        text, self.held = self.held, ""
        return text

    def _could_become_stop(self, buffer: str) -> int:
        """Length of the longest end of buffer that a stop string starts with."""
        longest = min(len(buffer), max((len(s) for s in self.stops), default=1) - 1)
        return next((n for n in range(longest, 0, -1) if any(s.startswith(buffer[-n:]) for s in self.stops)), 0)
