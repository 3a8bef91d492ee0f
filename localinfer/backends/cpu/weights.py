"""A tensor where it lies: a pointer into the mapped file, and what the kernels need to know about it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from localinfer.backends.cpu.structs import Matrix
from localinfer.errors import FormatError
from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType


class CpuWeight:
    """Raw blocks of one tensor; `shape` is (..., out, in). Copies nothing, except small vectors that are not F32."""

    def __init__(
        self, name: str, raw: memoryview, kind: GGMLType, shape: tuple[int, ...], rows: memoryview | None = None
    ) -> None:
        """rows: where single rows are looked up, if not in raw (which holds the tensor only while it is needed)."""
        self.name = name
        self.type = kind
        self.shape = shape
        self.raw = raw
        self._blocks = np.frombuffer(raw, np.uint8)
        self._rows = self._blocks if rows is None else np.frombuffer(rows, np.uint8)

    def __len__(self) -> int:
        return self.shape[-1]

    @property
    def row_bytes(self) -> int:
        return self.shape[-1] // self.type.block_values * self.type.block_bytes

    def matrix(self, first_row: int = 0, n_rows: int | None = None) -> Matrix:
        """Rows [first_row, first_row + n_rows) of (out, in); of one expert where the tensor holds several."""
        n_in, n_out = self.shape[-1], (self.shape[-2] if len(self.shape) > 1 else 1)
        address = self._blocks.ctypes.data + first_row * self.row_bytes
        return Matrix(address, int(self.type), 0, n_in, n_out if n_rows is None else n_rows, self.row_bytes)

    def table(self) -> Matrix:
        """(rows, in), to look single rows up in."""
        matrix = self.matrix()
        matrix.blocks = self._rows.ctypes.data
        return matrix

    @cached_property
    def _decoded(self) -> np.ndarray | None:
        """The vector as float32 where the file holds another type, or where it is not aligned for float32."""
        if self.type is GGMLType.F32 and self._blocks.ctypes.data % 4 == 0:
            return None
        return np.ascontiguousarray(dequantize(self.raw, self.type, self.shape), np.float32)

    def vector(self, n: int) -> int:
        """Address of n float32 values. FormatError where the tensor has another length."""
        if self.n_values != n:
            raise FormatError(f"tensor {self.name}: {n} values expected, found shape {list(self.shape)}")
        return (self._blocks if self._decoded is None else self._decoded).ctypes.data

    @cached_property
    def transposed(self) -> np.ndarray:
        """(in, out) as float32, a copy: for the few taps of a convolution."""
        return np.ascontiguousarray(dequantize(self.raw, self.type, self.shape).T, np.float32)

    @property
    def n_values(self) -> int:
        return int(np.prod(self.shape))

    @property
    def copied_bytes(self) -> int:
        """Bytes held beside the mapped file."""
        copies = (self.__dict__.get(name) for name in ("_decoded", "transposed"))
        return sum(copy.nbytes for copy in copies if copy is not None)
