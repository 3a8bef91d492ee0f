"""Keys and values as MLX arrays (G, slots, row), written in place by slice assignment, in the type asked for.

A layer with a sliding window is a ring: position p lives in slot p % ring. A fetched view must not live into the next
write: MLX would then copy the whole buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from localinfer.backends.base import OneTimeline
from localinfer.backends.mlx.kv_codec import decode, encode, row_elements, stored_dtype
from localinfer.errors import BackendError
from localinfer.kv.spec import KVLayer, KVSpec
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


class MLXKV(OneTimeline):
    """The cache of one conversation. Its buffers are allocated at once; a recurrent state at its first use."""

    def __init__(self, spec: KVSpec, encoder: Encoder = encode) -> None:
        self.spec = spec
        self.length = 0
        self._highest = 0  # most tokens ever stored since the cache was empty: what a ring has overwritten
        self._encode = encoder
        self._k = [_buffer(layer, layer.d_k, layer.k_type, False) for layer in spec.layers]
        self._v = [_buffer(layer, layer.d_v, layer.v_type, layer.v_in_k) for layer in spec.layers]
        self._states: dict[tuple[int, str], mx.array] = {}
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
        """All is forgotten where a recurrent state, or a ring that has overwritten what it needs, cannot go back."""
        if length < self.length:
            self.length = length if self._can_return_to(length) else 0
            self._states.clear()
        if self.length == 0:
            self._highest = 0
        return self.length

    def _can_return_to(self, length: int) -> bool:
        """A ring must still hold the window of the token that comes next."""
        return not self._states and all(
            self._highest - layer.n_tokens <= max(0, length - layer.window + 1)
            for layer in self.spec.layers
            if layer.window and layer.n_pages
        )


def _buffer(layer: KVLayer, d: int, kv_type: str, absent: bool) -> mx.array:
    n_heads = 0 if absent else layer.n_kv_heads
    return mx.zeros((n_heads, layer.n_tokens, row_elements(kv_type, d)), stored_dtype(kv_type))
