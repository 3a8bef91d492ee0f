"""The Metal launcher up to the point where a GPU is needed: MLX takes its calls, and writes the kernels' sources."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.mlx.adopt import Adopted
from localinfer.backends.mlx.device import MLXDevice, set_limits
from localinfer.backends.mlx.gpu_linear import BlockLinear
from localinfer.backends.mlx.launch import MetalLauncher
from localinfer.backends.mlx.weights import BlockWeight
from localinfer.formats.ggml_types import GGMLType

ON_CPU = not mx.metal.is_available() and not mx.cuda.is_available()


def weight() -> BlockWeight:
    raw = np.zeros(64 * 144, np.uint8)
    return BlockWeight(memoryview(raw.data), GGMLType.Q4_K, (64, 256), Adopted(mx.array(raw.view(np.uint32)), 0, 0))


@pytest.mark.parametrize("n", [1, 5, 40])
def test_mlx_takes_every_launch_of_a_product(n: int, tmp_path: Path) -> None:
    """Under export MLX traces the launch without running it: names, grids, template values and types are checked."""
    blocks, w = BlockLinear(MetalLauncher(), mx.float16), weight()
    path = tmp_path / "product.mlxfn"
    mx.export_function(str(path), lambda x: blocks.linear(x, w, mx.zeros((64,))), mx.zeros((n, 256)))
    assert path.stat().st_size > 0


@pytest.mark.skipif(not ON_CPU, reason="this machine has a GPU")
def test_without_metal_a_launch_says_so() -> None:
    blocks = BlockLinear(MetalLauncher(), mx.float16)
    with pytest.raises((RuntimeError, ValueError), match=r"(?i)metal|gpu"):
        mx.eval(blocks.linear(mx.zeros((1, 256)), weight(), None))


def test_limits_leave_room_for_adopted_pages() -> None:
    before = mx.set_memory_limit(1 << 30), mx.set_cache_limit(1 << 20)
    try:
        set_limits(MLXDevice("metal", "host", 16 << 30, mx.float16), 5 << 30)
        assert mx.set_memory_limit(1 << 30) == 21 << 30
        assert mx.set_cache_limit(1 << 20) == 512 << 20
        set_limits(MLXDevice("cpu", "mlx-cpu", 16 << 30, mx.float32), 5 << 30)
        assert mx.set_memory_limit(1 << 30) == 1 << 30
    finally:
        mx.set_memory_limit(before[0])
        mx.set_cache_limit(before[1])
