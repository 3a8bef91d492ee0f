"""Keys and values as MLX arrays (1, G, capacity, D), written in place by slice assignment.

A fetched view must not live into the next write: MLX would then copy the whole buffer.
"""

from __future__ import annotations

import mlx.core as mx

from localinfer.errors import UsageError
from localinfer.kv.spec import PAGE_TOKENS, KVSpec

_TYPES = {"f32": mx.float32, "f16": mx.float16}


class MLXKV:
    def __init__(self, spec: KVSpec) -> None:
        for layer in spec.layers:
            for kv_type in (layer.k_type, layer.v_type):
                if layer.n_pages and kv_type not in _TYPES:
                    raise UsageError(f"kv: the mlx backend stores f16 or f32, found {kv_type}", "use --kv f16")
        self.spec = spec
        self.length = 0
        n_tokens = -(-spec.n_ctx // PAGE_TOKENS) * PAGE_TOKENS
        self._k = [_zeros(layer.n_kv_heads, n_tokens, layer.d_k, layer.k_type) for layer in spec.layers]
        self._v = [
            _zeros(0 if layer.v_in_k else layer.n_kv_heads, n_tokens, layer.d_v, layer.v_type) for layer in spec.layers
        ]
        self._states: dict[tuple[int, str], mx.array] = {}

    @property
    def n_bytes(self) -> int:
        return sum(a.nbytes for a in self.arrays())

    def append(self, layer: int, k: mx.array, v: mx.array | None) -> tuple[mx.array, mx.array]:
        """Store (T, G, D) at `length`; returns all keys and values as (1, G, S, D) in the activations' type.

        Where v is None, values are the first d_v numbers of the keys.
        """
        keys = self._stored(self._k[layer], k)
        if v is None:
            return keys, keys[..., : self.spec.layers[layer].d_v]
        return keys, self._stored(self._v[layer], v)

    def _stored(self, store: mx.array, new: mx.array) -> mx.array:
        end = self.length + new.shape[0]
        store[:, :, self.length : end] = new.transpose(1, 0, 2)[None].astype(store.dtype)
        return store[:, :, :end].astype(new.dtype)

    def state(self, layer: int, part: str, shape: tuple[int, ...]) -> mx.array:
        """Recurrent state of a layer ('conv' or 'scan'), zeros at first."""
        return self._states.get((layer, part), mx.zeros(shape))

    def set_state(self, layer: int, part: str, value: mx.array) -> None:
        self._states[layer, part] = value

    def arrays(self) -> list[mx.array]:
        """All buffers, to be evaluated together after a chunk."""
        return [*self._k, *self._v, *self._states.values()]

    def truncate(self, length: int) -> int:
        """A recurrent state cannot be cut back: with one, all is forgotten."""
        if length < self.length:
            self.length = 0 if self._states else length
            self._states.clear()
        return self.length


def _zeros(n_heads: int, n_tokens: int, d: int, kv_type: str) -> mx.array:
    return mx.zeros((1, n_heads, n_tokens, d), _TYPES.get(kv_type, mx.float16))
