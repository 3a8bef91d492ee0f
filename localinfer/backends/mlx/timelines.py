"""Earlier timelines of an MLX cache: their own rows lie at the far end of the running timeline's buffers.

MLX's fused attention reads one dense array a layer, so pages with a block table would cost a gather of the whole cache
for every token. Instead a timeline that is left keeps a copy of the rows in which it differs, in slots that the running
one does not need yet; going back copies them to their places. Nothing is allocated for this, and a timeline that grows
takes its slots back: the least recently used go first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localinfer.kv.prefix import common_prefix

LEAST_ROWS = 16  # fewer are computed again as quickly


@dataclass
class Segment:
    """Rows of the positions first .. len(tokens) - 1 of a timeline, in the slots from `at` on."""

    tokens: list[int]
    first: int
    at: int
    used: int

    @property
    def n(self) -> int:
        return len(self.tokens) - self.first

    @property
    def end(self) -> int:
        return self.at + self.n


@dataclass(frozen=True)
class Copy:
    """Rows of the positions first .. end - 1, from a segment to where they belong."""

    segment: Segment
    first: int
    end: int


class Parked:
    """Which slots hold what. `move` copies rows, (source slot, target slot, rows) each, in every layer that keeps all
    positions; all are read before any is written."""

    def __init__(self, n_slots: int, move: Callable[[list[tuple[int, int, int]]], None]) -> None:
        self.segments: list[Segment] = []
        self._n_slots = n_slots
        self._move = move
        self._turn = 0

    def assemble(self, ids: Sequence[int], stored: int) -> list[Copy]:
        """Copies that lengthen the `stored` tokens of ids that lie in place already, one behind the other."""
        copies: list[Copy] = []
        while True:
            usable = [(common_prefix(s.tokens, ids), s) for s in self.segments if s.first <= stored]
            end, segment = max(usable, key=lambda u: u[0], default=(0, None))
            if segment is None or end <= stored:
                return copies
            copies.append(Copy(segment, stored, end))
            stored = end

    def fetch(self, copies: Sequence[Copy], length: int) -> None:
        """Do them, up to `length`."""
        self._turn += 1
        wanted = [c for c in copies if c.first < length]
        for c in wanted:
            c.segment.used = self._turn
        if wanted:
            self._move(
                [(c.segment.at + c.first - c.segment.first, c.first, min(c.end, length) - c.first) for c in wanted]
            )
        self.give_way(length)

    def park(self, tokens: Sequence[int], first: int, low: int, needed: Sequence[Copy]) -> None:
        """Keep the rows from `first` on of the timeline `tokens` in slots from `low` on, as many as there is room for;
        what is `needed` stays."""
        self._turn += 1
        known = (s for s in self.segments if s.first <= first and common_prefix(s.tokens, tokens) == len(tokens))
        if (segment := next(known, None)) is not None:
            segment.used = self._turn
            return
        kept = {id(c.segment) for c in needed}
        at, room = self._place(len(tokens) - first, low, kept)
        n = min(room, len(tokens) - first)
        if n >= LEAST_ROWS:
            self._move([(first, at, n)])
            self.segments.append(Segment(list(tokens[: first + n]), first, at, self._turn))

    def give_way(self, end: int) -> None:
        """The running timeline takes the slots before `end`."""
        if any(s.at < end for s in self.segments):
            self.segments = [s for s in self.segments if s.at >= end]

    def clear(self) -> None:
        self.segments.clear()

    def _place(self, n: int, low: int, kept: set[int]) -> tuple[int, int]:
        """A slot, and how many from there on are free: n if that can be had by dropping what nobody asked for long."""
        while True:
            at, room = max(self._gaps(low), key=lambda gap: gap[1], default=(low, 0))
            others = [s for s in self.segments if id(s) not in kept]
            if room >= n or not others:
                return at + max(0, room - n), min(room, n)
            self.segments.remove(min(others, key=lambda s: s.used))

    def _gaps(self, low: int) -> list[tuple[int, int]]:
        """(slot, length) of what is free from `low` on."""
        gaps, at = [], low
        for s in sorted(self.segments, key=lambda s: s.at):
            gaps.append((at, s.at - at))
            at = max(at, s.end)
        return [(at, n) for at, n in (*gaps, (at, self._n_slots - at)) if n > 0]
