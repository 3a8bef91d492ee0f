"""Merge adjacent symbols, best pair first, until none is left: the loop that BPE and SPM share.

`priority` maps `left + between + right` to a number, smaller is sooner; pairs that it lacks never merge. At each step
the pair with the smallest number merges, the leftmost of equals. That is the order of llama.cpp's and SentencePiece's
queues. The dict is asked directly, without a function between: this is the hottest loop of encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

NEVER = float("inf")

# Up to here scanning a short list beats a heap (measured on words of prose: the crossing is near 100 symbols).
_SCAN_LIMIT = 64


# Giving all rules to a compiled table takes as long as merging so many words without it, a rule.
_WORDS_A_RULE = 1 / 40

# Words with NUL between -> the same with byte 1 between the symbols of each; None where it cannot.
MergeTable = Callable[[str], str | None]
# (keys, the priority of each or None for its place, between) -> such a table; None where there are no compiled kernels.
OpenTable = Callable[[Sequence[str], Sequence[float] | None, str], MergeTable | None]


class Merger:
    """Merges by one `priority`. `open_table` brings a compiled form of the same loop, for many words at once.
    `rules`: the keys in the order of their priority, where there is such a list."""

    def __init__(
        self,
        priority: Mapping[str, float],
        between: str,
        open_table: OpenTable | None = None,
        rules: Sequence[str] | None = None,
    ) -> None:
        self.priority = priority
        self.between = between
        self._open_table = open_table
        self._rules = rules
        self._table: MergeTable | None = None

    def symbols(self, word: str) -> list[str]:
        """What is left of the characters of `word` after all merges."""
        return merge_symbols(list(word), self.priority, self.between)

    def symbols_of(self, words: Sequence[str]) -> Iterator[list[str]]:
        """Of each word."""
        merged = self._by_table(words)
        if merged is None:
            return map(self.symbols, words)
        return (word.split("\1") for word in merged.split("\0"))

    def _by_table(self, words: Sequence[str]) -> str | None:
        if self._open_table and len(words) > len(self.priority) * _WORDS_A_RULE:
            numbers = None if self._rules else list(self.priority.values())
            self._table = self._open_table(self._rules or list(self.priority), numbers, self.between)
            self._open_table = None
        joined = "\0".join(words)
        if self._table is None or "\1" in joined or joined.count("\0") != len(words) - 1:
            return None
        return self._table(joined)


class MergedIds:
    """Words -> the ids of what is left of them after all merges. `apart`: those of a symbol that is no token."""

    def __init__(self, merger: Merger, ids: Mapping[str, int], apart: Callable[[str], list[int]]) -> None:
        self.merger = merger
        self._ids = ids
        self._apart = apart

    def of(self, word: str) -> list[int]:
        return self.ids_of(self.merger.symbols(word))

    def of_each(self, words: Sequence[str]) -> Iterator[list[int]]:
        return map(self.ids_of, self.merger.symbols_of(words))

    def ids_of(self, symbols: Sequence[str]) -> list[int]:
        try:
            return [self._ids[symbol] for symbol in symbols]
        except KeyError:
            return [i for symbol in symbols for i in self._symbol(symbol)]

    def _symbol(self, symbol: str) -> list[int]:
        found = self._ids.get(symbol)
        return self._apart(symbol) if found is None else [found]


def merge_symbols(symbols: list[str], priority: Mapping[str, float], between: str) -> list[str]:
    """`symbols` after all merges. O(n^2) for short lists with a tiny constant, O(n log n) for long ones."""
    if len(symbols) <= _SCAN_LIMIT:
        return _merge_scanning(symbols, priority, between)
    return _merge_with_heap(symbols, priority, between)


def _merge_scanning(symbols: list[str], priority: Mapping[str, float], between: str) -> list[str]:
    get = priority.get
    pairs = [get(f"{a}{between}{b}", NEVER) for a, b in pairwise(symbols)]
    while pairs:
        best = min(pairs)
        if best == NEVER:
            break
        i = pairs.index(best)
        merged = symbols[i] = symbols[i] + symbols.pop(i + 1)
        del pairs[i]
        if i:
            pairs[i - 1] = get(f"{symbols[i - 1]}{between}{merged}", NEVER)
        if i < len(pairs):
            pairs[i] = get(f"{merged}{between}{symbols[i + 1]}", NEVER)
    return symbols


def _merge_with_heap(symbols: list[str], priority: Mapping[str, float], between: str) -> list[str]:
    """A linked list of live symbols and a heap of (priority, position of the left one).

    An entry is stale when the pair now at its position has another priority: `current` says which it has.
    """
    get = priority.get
    n = len(symbols)
    following = list(range(1, n + 1))  # n: the end
    preceding = list(range(-1, n - 1))
    current = [get(a + between + b, NEVER) for a, b in pairwise(symbols)]
    current.append(NEVER)
    heap = [(p, i) for i, p in enumerate(current) if p != NEVER]
    heapify(heap)
    while heap:
        best, i = heappop(heap)
        if current[i] != best:
            continue
        gone = following[i]
        merged = symbols[i] = symbols[i] + symbols[gone]
        symbols[gone] = ""
        current[gone] = NEVER
        after = following[i] = following[gone]
        found = NEVER
        if after < n:
            preceding[after] = i
            found = get(merged + between + symbols[after], NEVER)
            if found != NEVER:
                heappush(heap, (found, i))
        current[i] = found
        before = preceding[i]
        if before >= 0:
            found = current[before] = get(symbols[before] + between + merged, NEVER)
            if found != NEVER:
                heappush(heap, (found, before))
    return [symbol for symbol in symbols if symbol]
