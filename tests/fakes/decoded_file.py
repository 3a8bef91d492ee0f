"""A GGUF file's tensors decoded to float32, in the place of the file: what a backend computes with exact weights and
unrounded activations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.gguf import GGUFFile, TensorInfo
from localinfer.models.config import ModelConfig


class DecodedFile:
    """`tensors` and `raw` of a GGUFFile, which is all that the cpu backend asks of one that fits in memory."""

    def __init__(self, file: GGUFFile) -> None:
        self._values = {name: dequantize(file.raw(i), i.type, i.shape) for name, i in file.tensors.items()}
        self.tensors = {name: replace(i, type=GGMLType.F32, n_bytes=4 * i.n_values) for name, i in file.tensors.items()}

    def raw(self, info: TensorInfo) -> memoryview:
        return memoryview(np.ascontiguousarray(self._values[info.name]).reshape(-1).view(np.uint8).data)


@contextmanager
def opened_twice(path: Path, n_ctx: int) -> Iterator[tuple[GGUFFile, DecodedFile, ModelConfig]]:
    """The file, its decoded form, and the model that both are."""
    with GGUFFile.open(path) as file:
        yield file, DecodedFile(file), ModelConfig.from_gguf(file, n_ctx)
