"""Matrices in raw blocks times activations on a GPU: which kernel for how many rows, and in what shape.

Up to SMALL_ROWS rows a matrix is read once from its blocks and multiplied in float32 (decoding, and the verification
of drafts). Above that, tiles of rows are decoded into a scratch of bounded size in the device's half precision and
given to mx.matmul. Half precision is float16, so each row of x is divided by a power of two first: then neither its
values nor a product's sum can leave float16's range.

Letters: T rows of x; n_in, n_out of the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import mlx.core as mx

from localinfer.backends.mlx.gpu_route import Sorted
from localinfer.backends.mlx.kernels import BLOCKS, block_kernel
from localinfer.backends.mlx.launch import Launcher, ints, whole
from localinfer.backends.mlx.weights import BlockWeight
from localinfer.formats.ggml_types import GGMLType

SMALL_ROWS = 16
WIDTHS = (1, 2, 4, 8, 16)  # rows of x that one build of `linear` serves; T is rounded up to one of them
# Pairs an expert, on average, from which on decoding its tiles once pays for reading its blocks once for every 16.
MANY_PAIRS = 64
TILE_BYTES = 32 * 2**20  # of one decoded tile
_FLOATS = {GGMLType.F16: mx.float16, GGMLType.BF16: mx.bfloat16, GGMLType.F32: mx.float32}


@dataclass(frozen=True)
class MatvecShape:
    """rows: matrix rows a SIMD group; groups: SIMD groups a threadgroup; width: rows of x."""

    rows: int
    groups: int
    width: int


@cache
def matvec_shape(gtype: GGMLType, n_x: int, target: str) -> MatvecShape:
    """More rows a group share one read of x; fewer leave registers for the sums of a wide x. Counted, not yet tuned."""
    width = width_of(n_x)
    long_unit = BLOCKS[gtype].values == 256  # 32 values a lane instead of 16
    rows = (2 if long_unit else 4) if width <= 2 else 2 if width <= 4 or not long_unit else 1
    return MatvecShape(rows if width < 16 else 1, 2 if target == "metal" else 4, width)


def width_of(n_x: int) -> int:
    """The build for n_x rows; the widest for more."""
    return next((w for w in WIDTHS if w >= n_x), WIDTHS[-1])


class BlockLinear:
    """The products of a launcher; `half` is the type of matrix-matrix products."""

    def __init__(self, launcher: Launcher, half: mx.Dtype) -> None:
        self._gpu = launcher
        self.half = half
        self._no_bias = mx.zeros((8,))

    def linear(self, x: mx.array, w: BlockWeight, bias: mx.array | None) -> mx.array:
        """x (T, n_in) float32 -> (T, n_out) float32."""
        if x.shape[0] <= SMALL_ROWS:
            return self._small(x, w, bias)
        y = self._product(x, w)
        return y if bias is None else y + bias

    def _small(self, x: mx.array, w: BlockWeight, bias: mx.array | None) -> mx.array:
        n = x.shape[0]
        shape = matvec_shape(w.type, n, self._gpu.target)
        blocks = -(-w.n_out // (shape.rows * shape.groups))
        return self._gpu.launch(
            block_kernel("linear", w.type),
            [w.words, x, self._no_bias if bias is None else bias, ints(w.n_out, w.n_in, n)],
            [("ROWS", shape.rows), ("NX", shape.width), ("GROUPS", shape.groups), ("BIAS", int(bias is not None))],
            (32 * blocks, shape.groups, 1), (32, shape.groups, 1), [(n, w.n_out)], [mx.float32],
        )[0]  # fmt: skip

    def experts(self, x: mx.array, w: BlockWeight, by: Sorted, share: int = 1) -> mx.array:
        """Row i // share of x (by.order's, n_in) through the matrix of sorted pair i of w (E, n_out, n_in)."""
        n_pairs = by.experts.size
        many = by.width == WIDTHS[-1] and n_pairs > MANY_PAIRS * w.shape[0]
        if many and self._gpu.target == "metal":  # elsewhere mx.gather_mm may be missing, or without half precision
            return self._decoded_experts(x, w, by)
        shape = matvec_shape(w.type, by.width, self._gpu.target)
        blocks = -(-w.n_out // (shape.rows * shape.groups))
        return self._gpu.launch(
            block_kernel("linear_experts", w.type), [w.words, x, by.tiles, ints(w.n_out, w.n_in, share)],
            [("ROWS", shape.rows), ("NX", shape.width), ("GROUPS", shape.groups)],
            (32 * blocks, shape.groups, by.tiles.shape[0]), (32, shape.groups, 1),
            [(n_pairs, w.n_out)], [mx.float32],
        )[0]  # fmt: skip

    def _decoded_experts(self, x: mx.array, w: BlockWeight, by: Sorted) -> mx.array:
        """A tile of the same rows of every expert, and a product grouped by expert."""
        n_experts = w.shape[0]
        rows, scale = self._in_range(x)
        step = max(1, TILE_BYTES // (n_experts * w.n_in * self.half.size))
        parts = []
        for at in range(0, w.n_out, step):
            n = min(step, w.n_out - at)
            tile = self._rows_of_each(w, at, n).reshape(n_experts, n, w.n_in)
            y = mx.gather_mm(
                rows[:, None, :], tile.swapaxes(-1, -2), rhs_indices=by.experts.astype(mx.uint32), sorted_indices=True
            )
            parts.append(y[:, 0, :])
        y = (parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=1)).astype(mx.float32)
        return y if scale is None else y * scale

    def _rows_of_each(self, w: BlockWeight, first: int, n: int) -> mx.array:
        """Rows first..first+n-1 of every expert, decoded: (E * n, n_in)."""
        ids = mx.arange(w.shape[0])[:, None] * w.n_out + mx.arange(first, first + n)[None, :]
        return self._decode(w, ids.reshape(-1).astype(mx.int32), 0, ids.size, self.half, gather=True)

    def _product(self, x: mx.array, w: BlockWeight) -> mx.array:
        """By decoded tiles."""
        rows, scale = self._in_range(x)
        step = max(1, TILE_BYTES // (w.n_in * self.half.size))
        tiles = [rows @ self.matrix(w, at, min(at + step, w.n_out)).T for at in range(0, w.n_out, step)]
        y = (tiles[0] if len(tiles) == 1 else mx.concatenate(tiles, axis=1)).astype(mx.float32)
        return y if scale is None else y * scale

    def _in_range(self, x: mx.array) -> tuple[mx.array, mx.array | None]:
        """x in half precision, and the power of two that each row was divided by."""
        if self.half != mx.float16:
            return x.astype(self.half), None
        largest = mx.maximum(mx.abs(x).max(axis=1, keepdims=True), 1e-30)
        scale = mx.power(2.0, mx.floor(mx.log2(largest)))
        return (x / scale).astype(mx.float16), scale

    def matrix(self, w: BlockWeight, first: int, end: int) -> mx.array:
        """Rows first..end-1, decoded (or viewed, where they are stored in that type): (end - first, n_in)."""
        if w.type in _FLOATS and _FLOATS[w.type] == self.half:
            words = w.n_in * self.half.size // w.words.dtype.size  # of a row; a stack's values may pass an int32
            return w.words[first * words : end * words].view(self.half).reshape(end - first, w.n_in)
        return self._decode(w, ints(0), first, end - first, self.half, gather=False)

    def rows(self, w: BlockWeight, ids: Sequence[int]) -> mx.array:
        """Some rows in float32: (n, n_in)."""
        return self._decode(w, mx.array(list(ids), mx.int32), 0, len(ids), mx.float32, gather=True)

    def _decode(self, w: BlockWeight, ids: mx.array, first: int, n: int, dtype: mx.Dtype, gather: bool) -> mx.array:
        geometry = BLOCKS[w.type]
        units = w.n_in // geometry.values * geometry.parts
        threads = min(256, whole(units, 32))
        a_row = whole(units, threads)
        return self._gpu.launch(
            block_kernel("decode_rows", w.type), [w.words, ids, ints(w.n_in, first, a_row)],
            [("T", dtype), ("GATHER", int(gather))], (a_row * n, 1, 1), (threads, 1, 1), [(n, w.n_in)], [dtype],
        )[0]  # fmt: skip
