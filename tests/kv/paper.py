"""A store made of paper for PagedCache: a cell of a page remembers which prefix of which tokens wrote it.

So every misplaced, overwritten or stale cell shows: what a timeline reads must be its own prefixes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from localinfer.kv.cache import PagedCache
from localinfer.kv.spec import PAGE_TOKENS, KVLayer, KVSpec, checkpoint_pages, layer_pages


def spec(n_ctx: int, chunk: int, windows: Sequence[int] = (0,), state: bool = False, checkpoints: int = 2) -> KVSpec:
    """A layer for each window (0: it sees everything), and a recurrent one."""
    layers = []
    for window in windows:
        n_pages = layer_pages(n_ctx, window, chunk)
        spare = checkpoints * checkpoint_pages(window) if window and n_pages < -(-n_ctx // PAGE_TOKENS) else 0
        kind = "window" if window else "full"
        layers.append(KVLayer(kind, 1, 32, 32, "f16", "f16", n_pages, window, spare_pages=spare))
    if state:
        layers.append(KVLayer("state", 0, 0, 0, "f16", "f16", 0, 0, 64, spare_states=checkpoints))
    return KVSpec(n_ctx, chunk, tuple(layers))


class Paper:
    """A PagedCache with its store; `tokens` is the running timeline. Every method checks what the timeline reads."""

    def __init__(self, kv_spec: KVSpec) -> None:
        self.spec = kv_spec
        self.cache = PagedCache(kv_spec, self)
        self.tokens: list[int] = []
        self.state = 0
        self.slots: dict[int, int] = {}
        self.cells: list[dict[int, list[int]]] = [{} for _ in self.cache.classes]
        self.table: list[dict[int, int]] = [{} for _ in self.cache.classes]

    # PageStore

    def place(self, page_class: int, slot: int, page: int) -> None:
        self.table[page_class][slot] = page

    def copy_page(self, page_class: int, source: int, target: int) -> None:
        self.cells[page_class][target] = list(self.cells[page_class][source])

    def keep_state(self, slot: int) -> None:
        self.slots[slot] = self.state

    def take_state(self, slot: int | None) -> None:
        self.state = 0 if slot is None else self.slots[slot]

    # what a model does

    def extend(self, ids: Sequence[int]) -> None:
        self.cache.reserve(len(ids))
        for token in ids:
            prefix = hash((*self.tokens, token))
            assert self.state == self.prefix(len(self.tokens)) or not self.cache.has_state
            self.tokens.append(token)
            self.state = prefix
            p, at = divmod(self.cache.length, PAGE_TOKENS)
            for i, c in enumerate(self.cache.classes):
                page = self.table[i][p % c.n_slots]
                assert self.cache.pools[i].refs[page] == 1, "a shared page is written"
                self.cells[i].setdefault(page, [0] * PAGE_TOKENS)[at] = prefix
            self.cache.length += 1
        self.check()

    def switch(self, ids: Sequence[int]) -> int:
        stored = self.cache.switch(self.tokens, ids)
        self.tokens = list(ids[:stored])
        self.check()
        return stored

    def truncate(self, length: int) -> int:
        del self.tokens[self.cache.truncate(length) :]
        self.check()
        return len(self.tokens)

    def mark(self) -> None:
        self.cache.mark(self.tokens)
        self.check()

    def clear(self) -> None:
        self.cache.clear()
        self.tokens = []
        self.check()

    # what must hold

    def prefix(self, length: int) -> int:
        return hash(tuple(self.tokens[:length])) if length else 0

    def check(self) -> None:
        """The next token would read this timeline's own prefixes; every reference is somebody's."""
        cache = self.cache
        assert cache.length == len(self.tokens)
        if cache.has_state:
            assert self.state == self.prefix(cache.length)
        for i, c in enumerate(cache.classes):
            first = max(0, cache.length - c.window + 1) if c.window else 0
            read = range(first, cache.length)
            cells = self.cells[i]
            seen = [cells[self.table[i][t // PAGE_TOKENS % c.n_slots]][t % PAGE_TOKENS] for t in read]
            assert seen == self._prefixes()[first : cache.length]
        self.check_references()

    def _prefixes(self) -> list[int]:
        return [hash(tuple(self.tokens[: t + 1])) for t in range(len(self.tokens))]

    def check_references(self) -> None:
        cache = self.cache
        for i, (pool, c) in enumerate(zip(cache.pools, cache.classes, strict=True)):
            holders = Counter(page for _, page in cache.tables[i].held())
            if not c.window:
                holders.update(node.page for node in cache.tree.nodes())
            for _, checkpoint in cache.tree.checkpoints():
                holders.update(checkpoint.pages[i].values())
            assert holders == +Counter(dict(enumerate(pool.refs)))
            assert pool.in_use == len(holders) <= pool.n_pages
        states = Counter(c.state for _, c in cache.tree.checkpoints() if c.state is not None)
        assert states == +Counter(dict(enumerate(cache.states.refs)))
