"""Keys and values kept as plain arrays, stored in the type asked for (so that lossy types lose what they lose)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from localinfer.backends.base import OneTimeline
from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import quantize
from localinfer.kv.spec import KVSpec, rotation


class ReferenceKV(OneTimeline):
    """Holds every position of every layer; windows are the attention's business. `length` grows by forward()."""

    def __init__(self, spec: KVSpec) -> None:
        self.spec = spec
        self.length = 0
        self._k: list[np.ndarray | None] = [None] * len(spec.layers)
        self._v: list[np.ndarray | None] = [None] * len(spec.layers)
        self._states: dict[tuple[int, str], np.ndarray] = {}

    @property
    def n_bytes(self) -> int:
        return sum(a.nbytes for a in (*self._k, *self._v, *self._states.values()) if a is not None)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Store (T, G, D) at `length`; returns all keys and values, which are part of the keys where v is None."""
        spec = self.spec.layers[layer]
        stored = _stored(k, spec.k_type, rotates=v is not None)
        keys = self._k[layer] = _extend(self._k[layer], stored, self.length)
        if v is None:
            return keys, keys[..., : spec.d_v]
        values = self._v[layer] = _extend(self._v[layer], _stored(v, spec.v_type), self.length)
        return keys, values

    def state(self, layer: int, part: str, shape: tuple[int, ...]) -> np.ndarray:
        """Recurrent state of a layer ('conv' or 'scan'), zeros at first; the caller updates it in place."""
        return self._states.setdefault((layer, part), np.zeros(shape, np.float32))

    def truncate(self, length: int) -> int:
        """A recurrent state cannot be cut back: with one, all is forgotten."""
        if length < self.length:
            self.length = 0 if self._states else length
            self._states.clear()
        return self.length


def _stored(x: np.ndarray, kv_type: str, rotates: bool = True) -> np.ndarray:
    """x after a round trip through the storage type, rotated there and back."""
    if kv_type == "f32":
        return np.ascontiguousarray(x, np.float32)
    block = rotation(kv_type, x.shape[-1]) if rotates else 0
    gtype = GGMLType[kv_type.upper()]
    kept = dequantize(quantize(_rotated(x, block), gtype).reshape(-1), gtype, x.shape)
    return _rotated(kept, block)


def _rotated(x: np.ndarray, block: int) -> np.ndarray:
    return x if block < 2 else (x.reshape(*x.shape[:-1], -1, block) @ hadamard(block)).reshape(x.shape)


@lru_cache(maxsize=8)
def hadamard(n: int) -> np.ndarray:
    """float32 (n, n) over sqrt(n), its own inverse; n is a power of two."""
    bits = np.arange(n)[:, None] & np.arange(n)
    odd = sum((bits >> b) & 1 for b in range(n.bit_length())) % 2
    return ((1 - 2 * odd) / np.sqrt(n)).astype(np.float32)


def _extend(old: np.ndarray | None, new: np.ndarray, length: int) -> np.ndarray:
    return new if old is None or length == 0 else np.concatenate([old[:length], new])
