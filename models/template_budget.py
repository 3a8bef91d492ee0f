"""What one rendering of a chat template may cost: steps, characters produced, and time.

A template comes with the model file, so a stranger wrote it. Loops and macro calls count steps; every operation that
makes a string or a container pays for its size before it is made; the clock is read now and then. So nested ranges,
doubling strings, recursion and containers that share parts end in `TemplateLimit` after a few seconds at most.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any

MAX_STEPS = 2_000_000
MAX_SECONDS = 5.0
PROBE_SECONDS = 1.0
# Characters that all string operations of a rendering may make together, beside a share for long conversations.
MAX_CHARS = 64 * 2**20
CHARS_PER_INPUT_CHAR = 1024
STEPS_PER_INPUT_CHAR = 8
SECONDS_PER_INPUT_CHAR = 4e-6
# A number with more digits than this is no prompt's business; big powers take forever.
MAX_BITS = 4096
_CLOCK_EVERY = 256


class TemplateLimit(Exception):
    """A rendering that costs too much; the text says of what."""


class Budget:
    """Raises TemplateLimit when spent. `input_chars`: the size of the conversation to render."""

    def __init__(self, input_chars: int = 0, seconds: float = MAX_SECONDS) -> None:
        self._seconds = seconds + SECONDS_PER_INPUT_CHAR * input_chars
        self._steps = MAX_STEPS + STEPS_PER_INPUT_CHAR * input_chars
        self._chars = MAX_CHARS + CHARS_PER_INPUT_CHAR * input_chars
        self._deadline = time.monotonic() + self._seconds
        self._until_clock = _CLOCK_EVERY

    def spend(self, steps: int = 1) -> None:
        """Pay for loop turns, calls, or the elements of a container."""
        self._steps -= steps
        self._until_clock -= steps
        if self._steps < 0:
            raise TemplateLimit("too many steps")
        if self._until_clock < 0:
            self._until_clock = _CLOCK_EVERY
            if time.monotonic() > self._deadline:
                raise TemplateLimit(f"more than {self._seconds:.0f} s")

    def grow(self, n_chars: int) -> None:
        """Pay for a string of n_chars that is about to be made."""
        self._chars -= n_chars
        if self._chars < 0:
            raise TemplateLimit("too much text")
        self.spend(1 + n_chars // 4096)

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        """The same values, each paid for when it is taken."""
        for value in values:
            self.spend()
            yield value

    def pay_for_tree(self, value: object) -> None:
        """Pay for `value` as what printing or comparing it walks: shared parts count as often as they appear."""
        stack = [value]
        while stack:
            value = stack.pop()
            if isinstance(value, str):
                self.grow(len(value) // 8)
            elif isinstance(value, Mapping):
                stack += [*value.keys(), *value.values()]
            elif isinstance(value, Sequence | Set) and not isinstance(value, range | bytes):
                stack += value
            self.spend()

    def text_of(self, value: object) -> str:
        """str(value), paid for."""
        if not isinstance(value, str):
            self.pay_for_tree(value)
            value = str(value)
        self.grow(len(value))
        return str(value)

    def sized(self, values: Iterable[Any], limit: int = MAX_STEPS) -> list[Any]:
        """`values` as a list, each paid for."""
        return list(islice(self.counted(values), limit))
