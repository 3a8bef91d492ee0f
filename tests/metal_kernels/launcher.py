"""The backend's GPU path on the host: launches run through host.run_kernel, everything else on mlx-cpu."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from localinfer.backends.mlx.kernels import Kernel
from tests.metal_kernels.host import run_kernel
from tests.metal_kernels.limits import check_alignment, check_launch

NAMES = {mx.float32: "float32", mx.float16: "float16", mx.bfloat16: "bfloat16", mx.uint8: "uint8"}


class HostLauncher:
    """`target` metal or cuda only changes the shapes of groups. `launches` counts by kernel name."""

    def __init__(self, target: Literal["metal", "cuda"] = "metal") -> None:
        self.target: Literal["metal", "cuda"] = target
        self.launches: Counter[str] = Counter()

    def launch(
        self,
        kernel: Kernel,
        inputs: Sequence[mx.array],
        template: Sequence[tuple[str, Any]],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype],
    ) -> list[mx.array]:
        self.launches[kernel.name] += 1
        check_launch(kernel, inputs, grid, threadgroup)
        check_alignment(kernel, inputs)
        values = [(n, NAMES[v] if isinstance(v, mx.Dtype) else v) for n, v in template]
        names = [NAMES[d] for d in dtypes]
        run = run_kernel(kernel, [np.array(a) for a in inputs], values, grid, threadgroup, shapes, names)
        return [mx.array(a).view(d) for a, d in zip(run.outputs, dtypes, strict=True)]


class ShapeLauncher:
    """Runs nothing: checks each launch's limits and gives arrays of the right shape, for sizes of real models."""

    def __init__(self, target: Literal["metal", "cuda"] = "metal") -> None:
        self.target: Literal["metal", "cuda"] = target
        self.launches: Counter[str] = Counter()

    def launch(
        self,
        kernel: Kernel,
        inputs: Sequence[mx.array],
        template: Sequence[tuple[str, Any]],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype],
    ) -> list[mx.array]:
        self.launches[kernel.name] += 1
        check_launch(kernel, inputs, grid, threadgroup)
        return [mx.zeros(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
