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

import mlx.core as mx

from localinfer.backends.mlx.kernels import BLOCKS, block_kernel
from localinfer.backends.mlx.launch import Launcher, ints, whole
from localinfer.backends.mlx.weights import BlockWeight
from localinfer.formats.ggml_types import GGMLType

SMALL_ROWS = 16
WIDTHS = (1, 2, 4, 8, 16)  # rows of x that one build of `linear` serves; T is rounded up to one of them
TILE_BYTES = 32 * 2**20  # of one decoded tile
_FLOATS = {GGMLType.F16: mx.float16, GGMLType.BF16: mx.bfloat16, GGMLType.F32: mx.float32}


@dataclass(frozen=True)
class MatvecShape:
    """rows: matrix rows a SIMD group; groups: SIMD groups a threadgroup; width: rows of x."""

    rows: int
    groups: int
    width: int


def matvec_shape(gtype: GGMLType, n_x: int, target: str) -> MatvecShape:
    """More rows a group share one read of x; fewer leave registers for the sums of a wide x. Counted, not yet tuned."""
    width = next(w for w in WIDTHS if w >= n_x)
    long_unit = BLOCKS[gtype].values == 256  # 32 values a lane instead of 16
    rows = (2 if long_unit else 4) if width <= 2 else 2 if width <= 4 or not long_unit else 1
    return MatvecShape(rows if width < 16 else 1, 2 if target == "metal" else 4, width)


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
        y = self.product(x, w, 0, w.n_out)
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

    def experts(self, x: mx.array, w: BlockWeight, chosen: mx.array, share: int) -> mx.array:
        """Pair i: row i // share of x (n, n_in) through matrix chosen[i] of w (n_experts, n_out, n_in)."""
        n_pairs = chosen.size
        shape = matvec_shape(w.type, 1, self._gpu.target)
        blocks = -(-w.n_out // (shape.rows * shape.groups))
        return self._gpu.launch(
            block_kernel("linear_experts", w.type), [w.words, x, chosen.reshape(-1), ints(w.n_out, w.n_in, share)],
            [("ROWS", shape.rows), ("GROUPS", shape.groups)],
            (32 * blocks, shape.groups, n_pairs), (32, shape.groups, 1), [(n_pairs, w.n_out)], [mx.float32],
        )[0]  # fmt: skip

    def product(self, x: mx.array, w: BlockWeight, first: int, end: int) -> mx.array:
        """x (T, n_in) float32 times rows first..end-1 of w -> (T, end - first) float32, by decoded tiles."""
        rows, scale = self._in_range(x)
        step = max(1, TILE_BYTES // (w.n_in * self.half.size))
        tiles = [rows @ self.matrix(w, at, min(at + step, end)).T for at in range(first, end, step)]
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
            values = w.words.view(self.half)
            return values[first * w.n_in : end * w.n_in].reshape(end - first, w.n_in)
        return self._decode(w, ints(0), ints(w.n_in, first), end - first, self.half, gather=False)

    def rows(self, w: BlockWeight, ids: Sequence[int]) -> mx.array:
        """Some rows in float32: (n, n_in)."""
        return self._decode(w, mx.array(list(ids), mx.int32), ints(w.n_in, 0), len(ids), mx.float32, gather=True)

    def _decode(
        self, w: BlockWeight, ids: mx.array, sizes: mx.array, n: int, dtype: mx.Dtype, gather: bool
    ) -> mx.array:
        geometry = BLOCKS[w.type]
        units = w.n_in // geometry.values * geometry.parts
        threads = min(256, whole(units, 32))
        return self._gpu.launch(
            block_kernel("decode_rows", w.type), [w.words, ids, sizes], [("T", dtype), ("GATHER", int(gather))],
            (whole(units, threads), n, 1), (threads, 1, 1), [(n, w.n_in)], [dtype],
        )[0]  # fmt: skip
