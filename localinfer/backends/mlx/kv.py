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
        self._v = [_zeros(layer.n_kv_heads, n_tokens, layer.d_v, layer.v_type) for layer in spec.layers]

    @property
    def n_bytes(self) -> int:
        return sum(a.nbytes for a in (*self._k, *self._v))

    def append(self, layer: int, k: mx.array, v: mx.array) -> tuple[mx.array, mx.array]:
        """Store (T, G, D) at `length`; returns all keys and values as (1, G, S, D) in the activations' type."""
        end = self.length + k.shape[0]
        for store, new in ((self._k[layer], k), (self._v[layer], v)):
            store[:, :, self.length : end] = new.transpose(1, 0, 2)[None].astype(store.dtype)
        return (
            self._k[layer][:, :, :end].astype(k.dtype),
            self._v[layer][:, :, :end].astype(v.dtype),
        )

    def arrays(self) -> list[mx.array]:
        """All buffers, to be evaluated together after a chunk."""
        return [*self._k, *self._v]

    def truncate(self, length: int) -> int:
        self.length = min(self.length, length)
        return self.length


def _zeros(n_heads: int, n_tokens: int, d: int, kv_type: str) -> mx.array:
    return mx.zeros((1, n_heads, n_tokens, d), _TYPES.get(kv_type, mx.float16))
