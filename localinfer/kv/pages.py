"""Which page belongs to whom: pools of pages with reference counts, and the block tables of the running timeline.

Layers that keep the same positions share one numbering, a PageClass: page 7 of a class is page 7 in each of its
layers. A page in use has as many references as block tables, tree nodes and checkpoints name it; only a page with
one reference may be written. Backends keep the bytes; here are numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from localinfer.kv.spec import PAGE_TOKENS, KVSpec
from localinfer.records import dataclass


def pages_for(n_tokens: int) -> int:
    """Pages that so many tokens touch."""
    return -(-n_tokens // PAGE_TOKENS)


@dataclass(frozen=True)
class PageClass:
    """Layers that keep the same positions. `window` 0: all of them; else a ring of n_slots pages."""

    layers: tuple[int, ...]
    n_slots: int  # pages the running timeline holds at most
    n_pages: int  # pages there are: spare ones keep checkpoints
    window: int

    def first_page(self, length: int) -> int:
        """The oldest logical page that the token at position `length` reads."""
        return max(0, length - self.window + 1) // PAGE_TOKENS if self.window else 0


def page_classes(spec: KVSpec) -> list[PageClass]:
    """The classes of a cache, the one that keeps every position first (where there is one)."""
    n_full = pages_for(spec.n_ctx)
    found: dict[tuple[int, int, int], list[int]] = {}
    for i, layer in enumerate(spec.layers):
        if layer.n_pages:
            window = layer.window if layer.n_pages < n_full else 0
            found.setdefault((window, layer.n_pages, layer.spare_pages), []).append(i)
    return [
        PageClass(tuple(layers), n_pages, n_pages + spare, window)
        for (window, n_pages, spare), layers in sorted(found.items())
    ]


class PagePool:
    """Pages 0 .. n_pages-1. `touched` of them were ever used: the rest of the memory was never written."""

    def __init__(self, n_pages: int) -> None:
        self.n_pages = n_pages
        self.refs = [0] * n_pages
        self.touched = 0
        self._free: list[int] = []

    @property
    def in_use(self) -> int:
        return self.touched - len(self._free)

    @property
    def free(self) -> int:
        return self.n_pages - self.in_use

    def take(self) -> int | None:
        """A page with one reference, one used before where there is one; None when all are in use."""
        if self._free:
            page = self._free.pop()
        elif self.touched < self.n_pages:
            page = self.touched
            self.touched += 1
        else:
            return None
        self.refs[page] = 1
        return page

    def share(self, page: int) -> int:
        assert self.refs[page] > 0, page
        self.refs[page] += 1
        return page

    def drop(self, page: int) -> None:
        assert self.refs[page] > 0, page
        self.refs[page] -= 1
        if self.refs[page] == 0:
            self._free.append(page)


class BlockTable:
    """Pages of the running timeline in one class: logical page p lies in slot p % n_slots, until another one takes it.

    `place(slot, page)` is told of every change.
    """

    def __init__(self, pool: PagePool, n_slots: int, place: Callable[[int, int], None]) -> None:
        self.pool = pool
        self._n_slots = n_slots
        self._place = place
        self._pages = [-1] * n_slots
        self._holds = [-1] * n_slots  # the logical page in each slot
        self.end = 0  # logical pages from here on are in no slot

    def page_of(self, p: int) -> int | None:
        """The page that holds logical page p; None where there is none, or none any longer."""
        slot = p % self._n_slots
        return self._pages[slot] if self._holds[slot] == p else None

    def vacate(self, p: int) -> None:
        """Let go of what lies in the slot of logical page p."""
        self._release(p % self._n_slots)

    def put(self, p: int, page: int) -> None:
        """Logical page p is `page` now; its reference goes over to the table."""
        slot = p % self._n_slots
        self._release(slot)
        self._pages[slot], self._holds[slot] = page, p
        self.end = max(self.end, p + 1)
        self._place(slot, page)

    def cut(self, n_pages: int) -> None:
        """Let go of logical pages from n_pages on."""
        for p in range(max(n_pages, self.end - self._n_slots), self.end):
            if self._holds[p % self._n_slots] == p:
                self._release(p % self._n_slots)
        self.end = min(self.end, n_pages)

    def held(self) -> Iterator[tuple[int, int]]:
        """(logical page, page) of all slots in use."""
        return ((p, page) for p, page in zip(self._holds, self._pages, strict=True) if p >= 0)

    def _release(self, slot: int) -> None:
        if self._holds[slot] >= 0:
            self.pool.drop(self._pages[slot])
            self._pages[slot] = self._holds[slot] = -1
