"""Keys and values kept as plain arrays, stored in the type asked for (so that lossy types lose what they lose)."""

from __future__ import annotations

import numpy as np

from localinfer.backends.base import OneTimeline
from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import quantize
from localinfer.kv.spec import KVSpec


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
        keys = self._k[layer] = _extend(self._k[layer], _stored(k, spec.k_type), self.length)
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


def _stored(x: np.ndarray, kv_type: str) -> np.ndarray:
    """x after a round trip through the storage type."""
    if kv_type == "f32":
        return np.ascontiguousarray(x, np.float32)
    gtype = GGMLType[kv_type.upper()]
    return dequantize(quantize(x, gtype).reshape(-1), gtype, x.shape)


def _extend(old: np.ndarray | None, new: np.ndarray, length: int) -> np.ndarray:
    return new if old is None or length == 0 else np.concatenate([old[:length], new])
