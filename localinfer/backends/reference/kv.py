"""Keys and values kept as plain arrays, stored in the type asked for (so that lossy types lose what they lose)."""

from __future__ import annotations

import numpy as np

from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import quantize
from localinfer.kv.spec import KVSpec


class ReferenceKV:
    """Holds every position of every layer; windows are the attention's business. `length` grows by forward()."""

    def __init__(self, spec: KVSpec) -> None:
        self.spec = spec
        self.length = 0
        self._k: list[np.ndarray | None] = [None] * len(spec.layers)
        self._v: list[np.ndarray | None] = [None] * len(spec.layers)

    @property
    def n_bytes(self) -> int:
        return sum(a.nbytes for a in (*self._k, *self._v) if a is not None)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Store (T, G, D) at `length`; returns all keys and values, and the position of the first (always 0 here)."""
        spec = self.spec.layers[layer]
        self._k[layer] = _extend(self._k[layer], _stored(k, spec.k_type), self.length)
        self._v[layer] = _extend(self._v[layer], _stored(v, spec.v_type), self.length)
        return self._k[layer], self._v[layer], 0

    def truncate(self, length: int) -> int:
        self.length = min(self.length, length)
        return self.length


def _stored(x: np.ndarray, kv_type: str) -> np.ndarray:
    """x after a round trip through the storage type."""
    if kv_type == "f32":
        return np.ascontiguousarray(x, np.float32)
    gtype = GGMLType[kv_type.upper()]
    return dequantize(memoryview(quantize(x, gtype)).cast("B"), gtype, x.shape)


def _extend(old: np.ndarray | None, new: np.ndarray, length: int) -> np.ndarray:
    return new if old is None or length == 0 else np.concatenate([old[:length], new])
