"""Kernels -> calls: one launcher for Metal, one for CUDA, the same call for both.

The kernel objects are made once and kept; MLX compiles them at their first use, once for each set of template values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol

import mlx.core as mx

from localinfer.backends.mlx.kernels import Kernel, dialect

Shape = tuple[int, ...]
Dim3 = tuple[int, int, int]
Template = Sequence[tuple[str, Any]]


class Launcher(Protocol):
    target: Literal["metal", "cuda"]

    def launch(
        self,
        kernel: Kernel,
        inputs: Sequence[mx.array],
        template: Template,
        grid: Dim3,
        threadgroup: Dim3,
        shapes: Sequence[Shape],
        dtypes: Sequence[mx.Dtype],
    ) -> list[mx.array]:
        """Outputs in the order of kernel.outputs. `grid` is in threads, a multiple of `threadgroup`."""


class MetalLauncher:
    """mx.fast.metal_kernel. Its default math mode ("safe") is kept: masks rely on exact comparisons."""

    target: Literal["metal", "cuda"] = "metal"

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def launch(
        self,
        kernel: Kernel,
        inputs: Sequence[mx.array],
        template: Template,
        grid: Dim3,
        threadgroup: Dim3,
        shapes: Sequence[Shape],
        dtypes: Sequence[mx.Dtype],
    ) -> list[mx.array]:
        made = self._made.get(kernel.name) or self._make(kernel)
        return made(
            inputs=list(inputs), template=list(template), grid=grid, threadgroup=threadgroup,
            output_shapes=list(shapes), output_dtypes=list(dtypes),
        )  # fmt: skip

    def _make(self, kernel: Kernel) -> Any:
        maker = mx.fast.metal_kernel if self.target == "metal" else mx.fast.cuda_kernel
        made = self._made[kernel.name] = maker(
            name=kernel.name, input_names=list(kernel.inputs), output_names=list(kernel.outputs),
            source=kernel.source, header=dialect(self.target) + kernel.header,
        )  # fmt: skip
        return made


class CudaLauncher(MetalLauncher):
    """mx.fast.cuda_kernel, the same calls."""

    target: Literal["metal", "cuda"] = "cuda"


@lru_cache(maxsize=4096)
def ints(*values: int) -> mx.array:
    """Sizes for a kernel as an int32 array, made once for each set of values (all layers share a token's)."""
    return mx.array(values, mx.int32)


@lru_cache(maxsize=256)
def reals(*values: float) -> mx.array:
    """The same for float32."""
    return mx.array(values, mx.float32)


def whole(n: int, step: int) -> int:
    """n rounded up to a multiple of step."""
    return -(-n // step) * step
