"""Merge adjacent symbols, best pair first, until none is left: the loop that BPE and SPM share.

`priority` maps `left + between + right` to a number, smaller is sooner; pairs that it lacks never merge. At each step
the pair with the smallest number merges, the leftmost of equals. That is the order of llama.cpp's and SentencePiece's
queues. The dict is asked directly, without a function between: this is the hottest loop of encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from itertools import pairwise

NEVER = float("inf")

# Up to here scanning a short list beats a heap (measured on words of prose: the crossing is near 100 symbols).
_SCAN_LIMIT = 64


def merge_symbols(symbols: list[str], priority: Mapping[str, float], between: str) -> list[str]:
    """`symbols` after all merges. O(n^2) for short lists with a tiny constant, O(n log n) for long ones."""
    if len(symbols) <= _SCAN_LIMIT:
        return _merge_scanning(symbols, priority, between)
    return _merge_with_heap(symbols, priority, between)


def _merge_scanning(symbols: list[str], priority: Mapping[str, float], between: str) -> list[str]:
    get = priority.get
    pairs = [get(a + between + b, NEVER) for a, b in pairwise(symbols)]
    while pairs:
        best = min(pairs)
        if best == NEVER:
            break
        i = pairs.index(best)
        merged = symbols[i] = symbols[i] + symbols.pop(i + 1)
        del pairs[i]
        if i:
            pairs[i - 1] = get(symbols[i - 1] + between + merged, NEVER)
        if i < len(pairs):
            pairs[i] = get(merged + between + symbols[i + 1], NEVER)
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
