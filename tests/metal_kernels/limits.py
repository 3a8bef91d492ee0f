"""What Metal and CUDA allow a launch, as far as it can be seen without them."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from localinfer.backends.mlx.kernels import Kernel

MOST_THREADS = 1024  # of a threadgroup
MOST_BLOCKS = 65535  # of CUDA in y and in z
MOST_GRID = 2**31 - 1  # threads in x: MLX's grid is an int
HANDED_ON = ("w", "x", "keys", "values")  # of matrices and attention: passed to functions that take device memory
SMALLEST = 8  # elements: MLX passes smaller arrays in the constant space
VECTORS = ("x",)  # read four values at a time


def check_launch(
    kernel: Kernel, inputs: Sequence[mx.array], grid: tuple[int, int, int], threadgroup: tuple[int, int, int]
) -> None:
    assert len(inputs) == len(kernel.inputs)
    threads = int(np.prod(threadgroup))
    assert 0 < threads <= MOST_THREADS and threads % 32 == 0, (kernel.name, threadgroup)
    assert all(g > 0 and g % t == 0 for g, t in zip(grid, threadgroup, strict=True)), (kernel.name, grid, threadgroup)
    assert grid[0] <= MOST_GRID and max(grid[1] // threadgroup[1], grid[2] // threadgroup[2]) <= MOST_BLOCKS, (
        kernel.name, grid,
    )  # fmt: skip
    if any(part in kernel.name for part in ("linear", "decode", "attend")):
        for name, array in zip(kernel.inputs, inputs, strict=True):
            assert name not in HANDED_ON or array.size >= SMALLEST, (kernel.name, name, array.shape)


def check_alignment(kernel: Kernel, inputs: Sequence[mx.array]) -> None:
    """Rows of x that MLX hands over where they are must start at a multiple of 16 bytes within their buffer, whose own
    start is one on a GPU (mlx-cpu puts 8 bytes before it)."""
    if "linear" not in kernel.name:
        return
    for name, array in zip(kernel.inputs, inputs, strict=True):
        if name in VECTORS:
            view = np.asarray(array)
            assert not view.flags.c_contiguous or (view.ctypes.data - 8) % 16 == 0, (kernel.name, name, view.shape)
