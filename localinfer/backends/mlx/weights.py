"""GGUF tensors as MLX arrays.

Matrices are decoded to float32 when loaded: a counted copy, told to the user. (Kernels over the raw blocks of the
mapped file are for Apple and NVIDIA GPUs; on mlx-cpu this path exists to check the model code on MLX.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import mlx.core as mx
import numpy as np

from localinfer.formats.dequant import dequantize, dequantize_rows
from localinfer.formats.ggml_types import GGMLType


class MLXWeight:
    """`shape` is (..., out, in); `dense` decodes once, at first use."""

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
