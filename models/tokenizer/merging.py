"""Merge adjacent symbols, best pair first, until none is left: the loop that BPE and SPM share.

A `priority(left, right)` is a number, smaller is sooner, or `NEVER`. At each step the pair with the smallest
priority merges, the leftmost of equals. That is the order of llama.cpp's and SentencePiece's queues.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

NEVER = float("inf")
Priority = Callable[[str, str], float]

# Up to here scanning a short list beats a heap (measured on prose words: the crossing is near 100 symbols).
_SCAN_LIMIT = 64


def merge_symbols(symbols: list[str], priority: Priority) -> list[str]:
    """`symbols` after all merges. O(n^2) for short lists with a tiny constant, O(n log n) for long ones."""
    return _merge_scanning(symbols, priority) if len(symbols) <= _SCAN_LIMIT else _merge_with_heap(symbols, priority)


def _merge_scanning(symbols: list[str], priority: Priority) -> list[str]:
    pairs = [priority(a, b) for a, b in zip(symbols, symbols[1:], strict=False)]
    while pairs:
        best = min(pairs)
        if best == NEVER:
            break
        i = pairs.index(best)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        del pairs[i]
        if i:
            pairs[i - 1] = priority(symbols[i - 1], symbols[i])
        if i < len(pairs):
            pairs[i] = priority(symbols[i], symbols[i + 1])
    return symbols


def _merge_with_heap(symbols: list[str], priority: Priority) -> list[str]:
    """A linked list of live symbols and a heap of (priority, position of the left one).

    An entry is stale when the pair now at its position has another priority: `current` says which it has.
    """
    n = len(symbols)
    following = list(range(1, n + 1))  # n: the end
    preceding = list(range(-1, n - 1))
    current = [priority(a, b) for a, b in zip(symbols, symbols[1:], strict=False)]
    current.append(NEVER)
    heap = [(p, i) for i, p in enumerate(current) if p != NEVER]
    heapify(heap)
    while heap:
        best, i = heappop(heap)
        if current[i] != best:
            continue
        gone = following[i]
        symbols[i] += symbols[gone]
        symbols[gone] = ""
        current[gone] = NEVER
        after = following[i] = following[gone]
        if after < n:
            preceding[after] = i
            found = current[i] = priority(symbols[i], symbols[after])
            if found != NEVER:
                heappush(heap, (found, i))
        else:
            current[i] = NEVER
        before = preceding[i]
        if before >= 0:
            found = current[before] = priority(symbols[before], symbols[i])
            if found != NEVER:
                heappush(heap, (found, before))
    return [symbol for symbol in symbols if symbol]
