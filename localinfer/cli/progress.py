"""Progress on stderr, for a person: one line that is rewritten, and nothing at all where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from localinfer.units import format_bytes

REPAINT_S = 0.1
CLEAR = "\r\x1b[K"


class StatusLine:
    """`show` rewrites the line, at most ten times a second; `clear` takes it away."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self._on = sys.stderr.isatty()
        self._next = time.monotonic() + delay_s
        self._shown = False

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._on and now >= self._next:
            self._next = now + REPAINT_S
            self._shown = True
            sys.stderr.write(CLEAR + text)
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
            self._shown = False


@contextmanager
def byte_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yields progress(done, total). Off a terminal one line says what is being fetched."""
    line = StatusLine()
    start = time.monotonic()
    if not sys.stderr.isatty():
        print(f"fetching {title}", file=sys.stderr)

    def progress(done: int, total: int) -> None:
        speed = done / max(time.monotonic() - start, 1e-3)
        left = f", {(total - done) / speed:.0f} s left" if done and total > done else ""
        percent = f"{100 * done / total:3.0f} %" if total else ""
        line.show(f"{title}  {percent}  {format_bytes(done)} at {format_bytes(int(speed))}/s{left}")

    try:
        yield progress
    finally:
        line.clear()
