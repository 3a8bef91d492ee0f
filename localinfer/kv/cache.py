"""PagedCache: the running timeline of a conversation and, in the pages that it does not need, earlier ones.

All earlier timelines live in one tree (prefix.py). Changing to another prompt shares the pages of what both have in
common; a shared page is copied before it is written to. Whatever the running timeline needs is taken from the least
worthy of the kept: it can always grow to the whole context, and allocated memory never changes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Protocol

from localinfer.kv.pages import BlockTable, PagePool, page_classes, pages_for
from localinfer.kv.prefix import Checkpoint, Match, Node, PrefixTree, common_prefix
from localinfer.kv.spec import PAGE_TOKENS, KVSpec, checkpoint_pages
from localinfer.records import dataclass

EVICT_SHARE = 64  # of a pool are freed at once: looking for the least worthy costs a walk over the tree


class PageStore(Protocol):
    """The bytes, as a backend keeps them. Classes are counted as in `page_classes`."""

    def place(self, page_class: int, slot: int, page: int) -> None:
        """An entry of a block table."""

    def copy_page(self, page_class: int, source: int, target: int) -> None: ...

    def keep_state(self, slot: int) -> None:
        """Copy the running recurrent state into a checkpoint's slot."""

    def take_state(self, slot: int | None) -> None:
        """The running recurrent state is that of a slot; None: the state before the first token."""


@dataclass(frozen=True)
class Held:
    """A stored length with references to its pages, (logical page, page) by class, and to its state."""

    length: int
    pages: list[list[tuple[int, int]]]
    state: int | None


class PagedCache:
    """`length` tokens are stored. Who calls `switch` and `mark` brings the tokens of the running timeline."""

    def __init__(self, spec: KVSpec, store: PageStore) -> None:
        self.length = 0
        self.shared = 0  # tokens that the last `switch` had in common with any timeline
        self.classes = page_classes(spec)
        self.pools = [PagePool(c.n_pages) for c in self.classes]
        self.has_state = spec.has_state
        spare_states = max((layer.spare_states for layer in spec.layers), default=0)
        self.states = PagePool(spare_states if self.has_state else 0)
        self.tables = [
            BlockTable(pool, c.n_slots, lambda slot, page, i=i: store.place(i, slot, page))  # type: ignore[misc]
            for i, (pool, c) in enumerate(zip(self.pools, self.classes, strict=True))
        ]
        self.page_bytes = [sum(spec.layers[i].token_bytes for i in c.layers) * PAGE_TOKENS for c in self.classes]
        self.state_bytes = sum(layer.state_bytes for layer in spec.layers)
        self.forgetful = self.has_state or any(c.window for c in self.classes)
        self.tree = PrefixTree(self.forgetful)
        self._full = next((i for i, c in enumerate(self.classes) if not c.window), None)
        self._store = store
        self._turn = 0

    # the running timeline

    def reserve(self, n: int) -> None:
        """Make the pages of the next n tokens the timeline's own."""
        first, end = self.length // PAGE_TOKENS, pages_for(self.length + n)
        for i, table in enumerate(self.tables):
            for p in range(first, end):
                page = table.page_of(p)
                if page is None:
                    table.vacate(p)
                    table.put(p, self._take(i))
                elif table.pool.refs[page] > 1:
                    self._copy_on_write(i, p, page)

    def truncate(self, length: int) -> int:
        """Forget all tokens after `length`; 0 where windows or state cannot go back to it."""
        length = min(length, self.length)
        if not self._can_go_back_to(length):
            length = 0
        for table in self.tables:
            table.cut(pages_for(length))
        if length == 0:
            self._store.take_state(None)
        self.length = length
        return length

    def clear(self) -> None:
        """Forget the running timeline and all others."""
        self.truncate(0)
        for node in list(self.tree.nodes()):
            for c in list(node.checkpoints.values()):
                self._drop_checkpoint(node, c)
        for node in sorted(self.tree.nodes(), key=lambda n: -n.depth):
            self._drop_node(node)

    def _can_go_back_to(self, length: int) -> bool:
        if length in (0, self.length):
            return True
        end = pages_for(length)
        return not self.has_state and all(
            table.page_of(p) is not None
            for table, c in zip(self.tables, self.classes, strict=True)
            for p in (range(c.first_page(length), end) if c.window else ())
        )

    # other timelines

    def mark(self, tokens: Sequence[int]) -> None:
        """Remember this length: one will be able to go back to it though windows or state have gone on."""
        if self.forgetful and self.length and (self.states.n_pages or not self.has_state):
            known = self._insert(tokens).checkpoints.get(self.length)
            if known:
                known.used = self._turn
            else:
                self._checkpoint(tokens)

    def switch(self, tokens: Sequence[int], ids: Sequence[int]) -> int:
        """Leave the timeline of `tokens` for one that begins with `ids`, keeping it; returns how many are stored."""
        assert len(tokens) == self.length
        self._turn += 1
        common = common_prefix(tokens, ids)
        direct = common if self._can_go_back_to(common) else 0
        found = self.tree.match(ids)
        self.shared = max(common, found.shared)
        self._touch(found)
        held = self._hold(found) if found.length > direct else None
        if common < self.length:
            self._keep(tokens)
        if held:
            self._load(held)
        else:
            self.truncate(direct)
        return self.length

    def _keep(self, tokens: Sequence[int]) -> None:
        """All of the timeline goes into the tree."""
        if not self.forgetful:
            self._insert(tokens)
        self.mark(tokens)

    def _insert(self, tokens: Sequence[int]) -> Node:
        """The node of the timeline's last page. Pages that the tree holds already are not kept twice."""
        node = self.tree.root
        for p in range(pages_for(self.length)):
            first = p * PAGE_TOKENS
            node = self._insert_page(node, p, tuple(tokens[first : min(first + PAGE_TOKENS, self.length)]))
            node.used = self._turn
        return node

    def _insert_page(self, parent: Node, p: int, tokens: tuple[int, ...]) -> Node:
        own = self._own_page(p)
        found = self.tree.child(parent, tokens)
        if found:
            if self._full is not None and found.page != own and found.tokens == tokens:
                self.tables[self._full].put(p, self.pools[self._full].share(found.page))
            return found
        shorter = self.tree.shorter_leaf(parent, tokens)
        if self._full is not None:
            self.pools[self._full].share(own)
        if shorter:
            old = shorter.page
            self.tree.lengthen(shorter, tokens, own)
            if self._full is not None:
                self.pools[self._full].drop(old)
            return shorter
        return self.tree.add(parent, tokens, own)

    def _own_page(self, p: int) -> int:
        if self._full is None:
            return -1
        page = self.tables[self._full].page_of(p)
        assert page is not None, p
        return page

    def _checkpoint(self, tokens: Sequence[int]) -> None:
        state = None
        if self.has_state:
            state = self._take_state_slot()
            if state is None:
                return
            self._store.keep_state(state)
        node = self._insert(tokens)  # once more: making room for the state may have taken it from the tree
        pages: list[dict[int, int]] = []
        for table, pool, c in zip(self.tables, self.pools, self.classes, strict=True):
            end = pages_for(self.length)
            first = max(0, end - checkpoint_pages(c.window)) if c.window else end
            held = {p: table.page_of(p) for p in range(first, end)}
            pages.append({p: pool.share(page) for p, page in held.items() if page is not None})
        lowest = self.length if self.has_state else max(map(self._lowest, pages, self._windows()), default=0)
        node.checkpoints[self.length] = Checkpoint(self.length, lowest, pages, state, self._turn)

    def _windows(self) -> list[int]:
        return [c.window for c in self.classes]

    def _lowest(self, pages: dict[int, int], window: int) -> int:
        """The lowest length whose window lies in these pages, which go without a gap to the checkpoint's length."""
        if not window:
            return 0
        first = pages_for(self.length)
        while first - 1 in pages:
            first -= 1
        return first * PAGE_TOKENS + window - 1 if first else 0

    def _hold(self, match: Match) -> Held:
        """References to all that a stored length needs."""
        end, checkpoint = pages_for(match.length), match.checkpoint
        pages: list[list[tuple[int, int]]] = []
        for i, (pool, c) in enumerate(zip(self.pools, self.classes, strict=True)):
            if c.window:
                assert checkpoint is not None
                found = [(p, checkpoint.pages[i][p]) for p in range(c.first_page(match.length), end)]
            else:
                found = [(node.depth, node.page) for node in match.node.chain()[:end]]
            pages.append([(p, pool.share(page)) for p, page in found])
        state = checkpoint.state if checkpoint else None
        return Held(match.length, pages, None if state is None else self.states.share(state))

    def _load(self, held: Held) -> None:
        """Go on from a stored length, which shares its pages; the references are the block tables' now."""
        for table, pages in zip(self.tables, held.pages, strict=True):
            table.cut(0)
            for p, page in pages:
                table.put(p, page)
        if held.state is not None:
            self._store.take_state(held.state)
            self.states.drop(held.state)
        self.length = held.length

    def _touch(self, match: Match) -> None:
        for node in match.node.chain():
            node.used = self._turn
            node.hits += 1
        if match.checkpoint:
            match.checkpoint.used = self._turn
            match.checkpoint.hits += 1

    # bytes that come from elsewhere

    def first_pages(self) -> list[int]:
        """By class: the first logical page from which on the running timeline holds all."""
        found = []
        for table, c in zip(self.tables, self.classes, strict=True):
            first = pages_for(self.length)
            least = max(0, first - checkpoint_pages(c.window)) if c.window else 0
            while first > least and table.page_of(first - 1) is not None:
                first -= 1
            found.append(first)
        return found

    def adopt(self, tokens: Sequence[int], length: int, first_pages: Sequence[int]) -> bool:
        """Keep the timeline `tokens` and begin one of `length` tokens, whose pages from first_pages on and whose state
        are then the store's to fill. False where that would not be enough to go on from."""
        enough = all(f <= c.first_page(length) for f, c in zip(first_pages, self.classes, strict=True))
        if not enough or any(pages_for(length) - f > c.n_slots for f, c in zip(first_pages, self.classes, strict=True)):
            return False
        self._keep(tokens)
        self.truncate(0)
        for i, first in enumerate(first_pages):
            for p in range(first, pages_for(length)):
                self.tables[i].put(p, self._take(i))
        self.length = length
        return True

    # pages when there are none

    def _take(self, i: int) -> int:
        """A page of class i, from what is worth least where none is free."""
        page = self.pools[i].take()
        while page is None:
            freed = self.evict(i)
            assert freed, "the running timeline holds more pages than a context has"
            page = self.pools[i].take()
        return page

    def _copy_on_write(self, i: int, p: int, shared: int) -> None:
        """A page of its own for the timeline; under pressure, by letting the others that share it go."""
        pool = self.pools[i]
        own = pool.take()
        while own is None and pool.refs[shared] > 1:
            if not self.evict(i):
                self._unshare(i, shared)
            own = pool.take()
        if own is not None:
            if pool.refs[shared] > 1:
                self._store.copy_page(i, shared, own)
                self.tables[i].put(p, own)
            else:
                pool.drop(own)

    def evict(self, i: int) -> int:
        """Let go of the least worthy of what keeps pages of class i, until some are free; how many became so."""
        before = self.pools[i].free
        if self.classes[i].window:
            self._evict_checkpoints(i, before + 1)
        else:
            self._evict_leaves(before + 1 + self.pools[i].n_pages // EVICT_SHARE)
        return self.pools[i].free - before

    def _evict_checkpoints(self, i: int, n_pages: int) -> None:
        for node, checkpoint in self._by_worth():
            if self.pools[i].free >= n_pages:
                return
            if checkpoint.pages[i]:
                self._drop_checkpoint(node, checkpoint)

    def _by_worth(self) -> list[tuple[Node, Checkpoint]]:
        """Checkpoints, the least worthy first."""

        def worth(found: tuple[Node, Checkpoint]) -> float:
            node, checkpoint = found
            return self.tree.worth_of_checkpoint(node, checkpoint, self._turn, self._bytes_of(checkpoint))

        return sorted(self.tree.checkpoints(), key=worth)

    def _bytes_of(self, checkpoint: Checkpoint) -> int:
        """What nobody else holds."""
        own = sum(
            n_bytes * sum(pool.refs[page] == 1 for page in pages.values())
            for n_bytes, pool, pages in zip(self.page_bytes, self.pools, checkpoint.pages, strict=True)
        )
        return own + (self.state_bytes if checkpoint.state is not None else 0)

    def _evict_leaves(self, n_pages: int) -> None:
        """Leaves whose page nobody else uses, and then their parents."""
        assert self._full is not None
        pool, order = self.pools[self._full], count()
        heap = [entry for node in self.tree.nodes() if (entry := self._entry(node, order))]
        heapq.heapify(heap)
        while heap and pool.free < n_pages:
            node = heapq.heappop(heap)[2]
            parent = node.parent
            self._drop_node(node)
            if parent is not None and (entry := self._entry(parent, order)):
                heapq.heappush(heap, entry)

    def _entry(self, node: Node, order: Iterator[int]) -> tuple[float, int, Node] | None:
        """A place in the queue, for a leaf that frees a page."""
        assert self._full is not None
        if node.parent is None or node.children or self.pools[self._full].refs[node.page] != 1:
            return None
        return self.tree.worth_of_page(node, self._turn, self.page_bytes[self._full]), next(order), node

    def _unshare(self, i: int, page: int) -> None:
        """Whoever else holds this page lets go of it."""
        for node in list(self.tree.nodes()):
            if node.page == page and i == self._full:
                for below in sorted(node.below(), key=lambda n: -n.depth):
                    self._drop_node(below)
                return
        for node, checkpoint in list(self.tree.checkpoints()):
            if page in checkpoint.pages[i].values():
                self._drop_checkpoint(node, checkpoint)

    def _take_state_slot(self) -> int | None:
        """None where all slots are held for something else at the moment."""
        slot = self.states.take()
        while slot is None and (least := self._by_worth()):
            self._drop_checkpoint(*least[0])
            slot = self.states.take()
        return slot

    def _drop_node(self, node: Node) -> None:
        for checkpoint in list(node.checkpoints.values()):
            self._release_checkpoint(node, checkpoint)
        self.tree.remove(node)
        if self._full is not None:
            self.pools[self._full].drop(node.page)

    def _drop_checkpoint(self, node: Node, checkpoint: Checkpoint) -> None:
        """And the nodes that led to it only, where nodes hold no pages."""
        self._release_checkpoint(node, checkpoint)
        at: Node | None = node
        while self._full is None and at is not None and at.parent is not None:
            if at.children or at.checkpoints:
                break
            self.tree.remove(at)
            at = at.parent

    def _release_checkpoint(self, node: Node, checkpoint: Checkpoint) -> None:
        del node.checkpoints[checkpoint.length]
        for pool, pages in zip(self.pools, checkpoint.pages, strict=True):
            for page in pages.values():
                pool.drop(page)
        if checkpoint.state is not None:
            self.states.drop(checkpoint.state)
