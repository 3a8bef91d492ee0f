"""GGUF tensors as MLX sees them: decoded (mlx-cpu, for checking) or as the file's own blocks (Metal, CUDA)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import mlx.core as mx
import numpy as np

from localinfer.backends.mlx.adopt import Adopted
from localinfer.backends.mlx.kernels import has_kernel
from localinfer.formats.dequant import dequantize, dequantize_rows
from localinfer.formats.ggml_types import GGMLType


class MLXWeight:
    """A tensor decoded to float32 at first use. `shape` is (..., out, in)."""

    def __init__(self, raw: memoryview, gtype: GGMLType, shape: tuple[int, ...]) -> None:
        self._raw = raw
        self.type = gtype
        self.shape = shape

    @cached_property
    def dense(self) -> mx.array:
        return mx.array(dequantize(self._raw, self.type, self.shape))

    @property
    def dense_bytes(self) -> int:
        return int(np.prod(self.shape)) * 4

    def rows(self, ids: Sequence[int]) -> mx.array:
        return mx.array(dequantize_rows(self._raw, self.type, self.shape[-1], np.asarray(ids, np.int64)))


class BlockWeight:
    """A matrix, or a stack of them, that kernels read as raw blocks: `words` begins at its first block."""

    def __init__(self, raw: memoryview, gtype: GGMLType, shape: tuple[int, ...], adopted: Adopted) -> None:
        assert has_kernel(gtype, shape[-1])
        self._raw = raw
        self.type = gtype
        self.shape = shape
        self.words = adopted.words
        self.n_in = shape[-1]
        self.n_out = shape[-2] if len(shape) > 1 else 1
        self.decoded_bytes = 0

    @cached_property
    def dense(self) -> mx.array:
        """Decoded to float32, for the few small tensors that are not multiplied as matrices (taps, tables, biases)."""
        decoded = dequantize(self._raw, self.type, self.shape)
        self.decoded_bytes = decoded.nbytes
        return mx.array(decoded)


class DenseWeight:
    """A vector in float32; a matrix without a kernel in the type that the device multiplies in, decoded at load."""

    def __init__(self, raw: memoryview, gtype: GGMLType, shape: tuple[int, ...], dtype: mx.Dtype) -> None:
        self._raw = raw
        self.type = gtype
        self.shape = shape
        values = dequantize(raw, gtype, shape)
        self.dense = mx.array(values).astype(dtype)
        mx.eval(self.dense)  # the float32 copy is gone before the next tensor
        self.decoded_bytes = self.dense.nbytes

    def rows(self, ids: Sequence[int]) -> mx.array:
        return mx.array(dequantize_rows(self._raw, self.type, self.shape[-1], np.asarray(ids, np.int64)))
