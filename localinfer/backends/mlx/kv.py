"""Keys and values as MLX arrays (G, slots, row), written in place by slice assignment, in the type asked for.

A layer with a sliding window is a ring: position p lives in slot p % ring. A fetched view must not live into the next
write: MLX would then copy the whole buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import mlx.core as mx
import numpy as np

from localinfer.backends.mlx.kv_codec import decode, encode, row_elements, stored_dtype
from localinfer.backends.mlx.timelines import Parked
from localinfer.backends.reference.kv import hadamard
from localinfer.errors import BackendError
from localinfer.formats.kv_file import Piece
from localinfer.kv.prefix import common_prefix
from localinfer.kv.spec import PAGE_TOKENS, KVLayer, KVSpec, checkpoint_pages
from localinfer.units import format_bytes

Encoder = Callable[[mx.array, str], mx.array]  # (T, G, D) float32, KV type -> (T, G, row_elements)


@dataclass(frozen=True)
class Slots:
    """Which positions a layer's slots hold once a chunk of n tokens is stored: n_slots of them, in a ring of `ring`."""

    last: int  # position of the newest token
    n_slots: int
    ring: int

    @property
    def in_order(self) -> bool:
        """Slot s holds position s."""
        return self.last < self.ring

    def positions(self) -> np.ndarray:
        """(n_slots,) the largest position up to `last` that is s modulo ring."""
        return self.last - (self.last - np.arange(self.n_slots)) % self.ring


@dataclass(frozen=True)
class Mark:
    """What windows and states were at the end of `tokens`: rows of keys and values from position `first` on, layer by
    layer."""

    tokens: tuple[int, ...]
    first: dict[int, int]
    rows: dict[int, tuple[mx.array, mx.array]]
    states: dict[tuple[int, str], mx.array]

    @property
    def length(self) -> int:
        return len(self.tokens)


class MLXKV:
    """The running timeline, and what its buffers have room for of earlier ones (timelines.py).

    Its buffers are allocated at once; a recurrent state at its first use."""

    def __init__(self, spec: KVSpec, encoder: Encoder = encode) -> None:
        self.spec = spec
        self.length = 0
        self._highest = 0  # most tokens ever stored since the cache was empty: what a ring has overwritten
        self._encode = encoder
        self._k = [_buffer(layer, layer.d_k, layer.k_type, False) for layer in spec.layers]
        self._v = [_buffer(layer, layer.d_v, layer.v_type, layer.v_in_k) for layer in spec.layers]
        self._states: dict[tuple[int, str], mx.array] = {}
        self.shared = 0
        self._marks: list[Mark] = []  # of all timelines, the one used last at the end
        self._own: list[Mark] = []  # of the running timeline, by length
        self._full = [i for i, layer in enumerate(spec.layers) if layer.n_pages > 0 and not self._rolls(layer)]
        self._parked = Parked(spec.layers[self._full[0]].n_tokens if self._full else 0, self._move)
        try:
            mx.eval(*self._k, *self._v)
        except RuntimeError as error:
            raise BackendError(
                f"the KV cache of {format_bytes(self.n_bytes)} could not be allocated: {error}",
                "use a smaller --ctx or --kv q8_0",
            ) from None

    @property
    def n_bytes(self) -> int:
        """spec.n_bytes: buffers and recurrent states."""
        return sum(a.nbytes for a in (*self._k, *self._v)) + sum(layer.state_bytes for layer in self.spec.layers)

    def append(self, layer: int, k: mx.array, v: mx.array | None) -> Slots:
        """Store k (T, G, Dk) and v (T, G, Dv) at `length`; v is None where values are part of the keys."""
        spec = self.spec.layers[layer]
        end = self.length + k.shape[0]
        self._parked.give_way(end)
        self._write(self._k[layer], self._encode(k, spec.k_type))
        if v is not None:
            self._write(self._v[layer], self._encode(v, spec.v_type))
        self._highest = max(self._highest, end)
        return Slots(end - 1, min(end, spec.n_tokens), spec.n_tokens)

    def _write(self, store: mx.array, rows: mx.array) -> None:
        """rows (T, G, row) into the ring from slot length % ring."""
        ring, n = store.shape[1], rows.shape[0]
        assert n <= ring, (n, ring)
        at = self.length % ring
        first = min(n, ring - at)
        by_head = rows.transpose(1, 0, 2)
        store[:, at : at + first] = by_head[:, :first]
        if first < n:
            store[:, : n - first] = by_head[:, first:]

    def stored(self, layer: int) -> tuple[mx.array, mx.array]:
        """The layer's whole buffers of keys and values (the same one twice where values are part of the keys)."""
        return self._k[layer], self._k[layer] if self.spec.layers[layer].v_in_k else self._v[layer]

    def read(self, layer: int, first: int, end: int) -> tuple[mx.array, mx.array]:
        """Keys and values of the slots first..end-1, decoded: (G, end - first, D) each."""
        spec = self.spec.layers[layer]
        keys = decode(self._k[layer][:, first:end], spec.k_type, spec.d_k)
        if spec.v_in_k:
            return keys, keys[..., : spec.d_v]
        return keys, decode(self._v[layer][:, first:end], spec.v_type, spec.d_v)

    def state(self, layer: int, part: str, shape: tuple[int, ...]) -> mx.array:
        """Recurrent state of a layer ('conv' or 'scan'), zeros at first."""
        return self._states.get((layer, part), mx.zeros(shape))

    def set_state(self, layer: int, part: str, value: mx.array) -> None:
        self._states[layer, part] = value

    def arrays(self) -> list[mx.array]:
        """All buffers, to be evaluated together after a chunk."""
        return [*self._k, *self._v, *self._states.values()]

    def truncate(self, length: int) -> int:
        """Where a recurrent state, or a ring that has overwritten what it needs, cannot go back: to the last mark
        before that length, or to nothing."""
        if length < self.length:
            self._own = [mark for mark in self._own if mark.length <= length]
            if self._can_return_to(length):
                self.length = length
            elif self._own and length:
                self._return_to(self._own[-1])
            else:
                self.length = 0
                self._states.clear()
        if self.length == 0:
            self._highest = 0
            self._own.clear()
        return self.length

    def clear(self) -> None:
        """Forget everything."""
        self.truncate(0)
        self._parked.clear()
        self._marks.clear()

    def mark(self, tokens: Sequence[int]) -> None:
        """Keep copies of windows and states, as many as the spec has room for; those used longest ago go first."""
        known = any(mark.length == self.length for mark in self._own)
        if not self.spec.remembers or known or not self.length:
            return
        first = {i: self._first_kept(layer) for i, layer in enumerate(self.spec.layers) if layer.spare_pages}
        slots = {i: self._slots(i, at) for i, at in first.items()}
        rows = {i: (self._k[i][:, s], self._v[i][:, s]) for i, s in slots.items()}
        mx.eval(list(rows.values()))
        self._own.append(Mark(tuple(tokens), first, rows, dict(self._states)))
        self._marks.append(self._own[-1])
        del self._marks[: -_most_marks(self.spec)]
        self._own = [mark for mark in self._own if any(mark is kept for kept in self._marks)]

    def switch(self, tokens: Sequence[int], ids: Sequence[int]) -> int:
        """Leave the timeline `tokens` for one that begins with ids, keeping it as far as there is room; how many of
        ids are stored."""
        common = common_prefix(tokens, ids)
        copies = self._parked.assemble(ids, common)
        self.shared = copies[-1].end if copies else common
        mark = self._mark_for(ids, common, self.shared)
        target = mark.length if mark else self.shared if not self._forgets else common
        self._marks.sort(key=lambda m: m is mark)  # used now: goes last
        if common < len(tokens):
            self.mark(tokens)
            self._parked.park(tokens, common, max(target, len(ids)) + 1, copies)
        self._parked.fetch(copies, target)
        if mark:
            self._return_to(mark)
        elif target > common:
            self.length = self._highest = target
        else:
            self.truncate(common)
        self._own = sorted((m for m in self._marks if m.tokens == tuple(ids[: min(m.length, self.length)])),
                           key=lambda m: m.length)  # fmt: skip
        return self.length

    @property
    def _forgets(self) -> bool:
        return self.spec.has_state or any(map(self._rolls, self.spec.layers))

    def _rolls(self, layer: KVLayer) -> bool:
        return 0 < layer.n_tokens < self.spec.n_ctx

    def _mark_for(self, ids: Sequence[int], common: int, assembled: int) -> Mark | None:
        """The longest mark that one may go on from, where that is further than what lies in place."""
        if not self._forgets:
            return None
        in_place = common if self._can_return_to(common) or common == self.length else 0
        most = assembled if self._full else len(ids)
        usable = [m for m in self._marks if in_place < m.length <= most and m.tokens == tuple(ids[: m.length])]
        return max(usable, key=lambda m: m.length, default=None)

    def _move(self, copies: list[tuple[int, int, int]]) -> None:
        """Rows from slot to slot, in the layers that keep every position. All are read before any is written, and as
        copies: a view would make MLX copy the whole buffer."""
        for i in self._full:
            for store in (self._k[i], self._v[i]):
                rows = [store[:, mx.array(np.arange(source, source + n))] for source, _, n in copies]
                mx.eval(rows)
                for (_, target, n), moved in zip(copies, rows, strict=True):
                    store[:, target : target + n] = moved
        mx.eval(*self._k, *self._v)

    # saved and restored

    @property
    def layout(self) -> str | None:
        """Of the saved rows; None where recurrent states would have to be saved with them."""
        return None if self.spec.has_state else "mlx rows 1"

    def first_pages(self) -> list[int]:
        """By layer: the first position whose row is saved."""
        return [max(0, self._highest - x.n_tokens) if self._rolls(x) else 0 for x in self.spec.layers]

    def pieces(self) -> Iterator[Piece]:
        """The running timeline's rows, layer by layer."""
        for i, first in enumerate(self.first_pages()):
            slots = self._slots(i, first)
            for name, store in (("k", self._k[i]), ("v", self._v[i])):
                if store.size:
                    yield f"{name} {i}", (np.array(store[:, slots]).data.cast("B"),)

    def restore(
        self, tokens: Sequence[int], length: int, first_pages: Sequence[int], read: Callable[[str, int], memoryview]
    ) -> bool:
        """Leave the timeline `tokens`, which is kept as far as there is room, for one of `length` tokens that `read`
        gives the rows of. False where the rows are not enough. Where `read` raises, nothing is stored any longer."""
        layers = self.spec.layers
        if len(first_pages) != len(layers) or length > self.spec.n_ctx:
            return False
        for layer, first in zip(layers, first_pages, strict=True):
            oldest = max(0, length - layer.window + 1) if self._rolls(layer) else 0
            if layer.n_pages and (first > oldest or length - first > layer.n_tokens):
                return False
        self.mark(tokens)
        self._parked.park(tokens, 0, length + 1, ())
        self.truncate(0)
        try:
            self.length = length
            self._fill(first_pages, read)
        except BaseException:
            self.truncate(0)
            raise
        rolled = [f + x.n_tokens for x, f in zip(layers, first_pages, strict=True) if self._rolls(x) and f]
        self._highest = max([length, *rolled])
        return True

    def _fill(self, first_pages: Sequence[int], read: Callable[[str, int], memoryview]) -> None:
        for i, first in enumerate(first_pages):
            slots = self._slots(i, first)
            for name, store in (("k", self._k[i]), ("v", self._v[i])):
                if not store.size:
                    continue
                shape = (store.shape[0], self.length - first, store.shape[2])
                dtype = {mx.float32: np.float32, mx.float16: np.float16}.get(store.dtype, np.uint16)
                data = read(f"{name} {i}", int(np.prod(shape)) * store.itemsize)
                store[:, slots] = mx.array(np.frombuffer(data, dtype).reshape(shape))
        mx.eval(*self._k, *self._v)

    def _return_to(self, mark: Mark) -> None:
        self.length = mark.length
        for i, (k, v) in mark.rows.items():
            slots = self._slots(i, mark.first[i])
            self._k[i][:, slots], self._v[i][:, slots] = k, v
        oldest = [first + self.spec.layers[i].n_tokens for i, first in mark.first.items()]
        self._highest = max([self.length, *oldest])  # as if the ring had overwritten all before what was kept
        self._states = dict(mark.states)

    def _first_kept(self, layer: KVLayer) -> int:
        """The oldest position that a mark keeps: the window, as far as the ring still has it, and a page more."""
        return max(0, self._highest - layer.n_tokens, self.length - layer.window + 1 - PAGE_TOKENS)

    def _slots(self, layer: int, first: int) -> mx.array:
        """Where the positions first..length-1 lie."""
        return mx.array(np.arange(first, self.length) % self.spec.layers[layer].n_tokens)

    def _can_return_to(self, length: int) -> bool:
        """A ring must still hold the window of the token that comes next."""
        return not self._states and all(
            self._highest - layer.n_tokens <= max(0, length - layer.window + 1)
            for layer in self.spec.layers
            if layer.window and layer.n_pages
        )


def rotate(x: mx.array, block: int) -> mx.array:
    """Every `block` values of the last axis times the Hadamard matrix over sqrt(block), which is its own inverse."""
    return x if block < 2 else (x.reshape(*x.shape[:-1], -1, block) @ _hadamard(block)).reshape(x.shape)


@lru_cache(maxsize=8)
def _hadamard(n: int) -> mx.array:
    return mx.array(hadamard(n))


def _most_marks(spec: KVSpec) -> int:
    """That fit into the spare pages and states."""
    pages = [layer.spare_pages // checkpoint_pages(layer.window) for layer in spec.layers if layer.spare_pages]
    return min([*pages, *(layer.spare_states for layer in spec.layers if layer.spare_states)])


def _buffer(layer: KVLayer, d: int, kv_type: str, absent: bool) -> mx.array:
    n_heads = 0 if absent else layer.n_kv_heads
    return mx.zeros((n_heads, layer.n_tokens, row_elements(kv_type, d)), stored_dtype(kv_type))
