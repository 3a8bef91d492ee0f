"""The Metal launcher up to the point where a GPU is needed: MLX takes its calls, and writes the kernels' sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.mlx.adopt import Adopted
from localinfer.backends.mlx.device import MLXDevice, set_limits
from localinfer.backends.mlx.gpu_linear import BlockLinear
from localinfer.backends.mlx.gpu_ops import GpuOps
from localinfer.backends.mlx.launch import CudaLauncher, MetalLauncher
from localinfer.backends.mlx.weights import BlockWeight
from localinfer.formats.ggml_types import GGMLType
from localinfer.models.config import MoEConfig
from localinfer.models.ops import MoEWeights
from tests.metal_kernels.launcher import ShapeLauncher

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


# -- what only a GPU's build of MLX runs, against fakes ----------------------------------------------------------------


def parameters(function: Any) -> set[str]:
    """Names in the signature that MLX's own documentation gives."""
    return set(re.findall(r"(\w+): ", (function.__doc__ or "").strip().splitlines()[0]))


class FakeMaker:
    """mx.fast.metal_kernel or cuda_kernel: takes what the real one names, and remembers calls of what it made."""

    def __init__(self, real: Any) -> None:
        self.known = parameters(real)
        self.made: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **given: Any) -> Any:
        assert set(given) <= self.known, set(given) - self.known
        self.made.append(given["name"])
        assert given["source"].isascii() and given["header"].isascii()

        def call(**launch: Any) -> list[mx.array]:
            self.calls.append(launch)
            return [mx.zeros(s, d) for s, d in zip(launch["output_shapes"], launch["output_dtypes"], strict=True)]

        return call


CALLED_WITH = {"inputs", "template", "grid", "threadgroup", "output_shapes", "output_dtypes"}


@pytest.mark.parametrize(("launcher", "maker"), [(MetalLauncher, "metal_kernel"), (CudaLauncher, "cuda_kernel")])
def test_kernels_are_made_once_and_called_as_mlx_documents(
    launcher: Any, maker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(mx.fast, maker)
    fake = FakeMaker(real)
    monkeypatch.setattr(mx.fast, maker, fake)
    blocks, w = BlockLinear(launcher(), mx.float16), weight()
    for n in (1, 1, 5, 40):
        assert blocks.linear(mx.zeros((n, 256)), w, None).shape == (n, 64)
    assert fake.made == ["li_linear_q4_k", "li_decode_rows_q4_k"]
    assert len(fake.calls) == 4 and all(set(call) == CALLED_WITH for call in fake.calls)
    for name in CALLED_WITH:
        assert name in (real.__doc__ or ""), f"{maker} no longer speaks of {name}"
    groups = dict(fake.calls[0]["template"])["GROUPS"]
    assert fake.calls[0]["threadgroup"] == (32, groups, 1) and groups == (2 if maker == "metal_kernel" else 4)


def shaped(*shape: int, gtype: GGMLType = GGMLType.Q4_K) -> BlockWeight:
    """A weight with a shape and no bytes to speak of."""
    return BlockWeight(memoryview(b""), gtype, shape, Adopted(mx.zeros((64,), mx.uint32), 0, 0))


@pytest.mark.parametrize("target", ["metal", "cuda"])
@pytest.mark.parametrize("n", [1, 16, 512, 2048])
def test_launches_of_large_models_stay_within_a_gpus_limits(target: Any, n: int) -> None:
    """Nothing is computed: Gemma's vocabulary, Mixtral's and Qwen's experts, DeepSeek's heads, narrow rows, KV."""
    launcher = ShapeLauncher(target)
    ops = GpuOps(launcher, mx.float16)
    assert ops.linear(mx.zeros((min(n, 16), 5376)), shaped(262144, 5376)).shape[1] == 262144
    assert ops.linear(mx.zeros((n, 256)), shaped(151936, 256)).shape == (n, 151936)
    for n_experts, n_used, n_ff, width in ((8, 2, 14336, 4096), (128, 8, 768, 2048)):
        moe = MoEWeights(
            router=shaped(n_experts, width, gtype=GGMLType.F32), up=shaped(n_experts, n_ff, width),
            gate=shaped(n_experts, n_ff, width), down=shaped(n_experts, width, n_ff),
        )  # fmt: skip
        assert ops.moe(mx.zeros((n, width)), moe, MoEConfig(n_experts, n_used, n_ff), "silu").shape == (n, width)
    assert ops.head_linear(mx.zeros((n, 128, 512)), shaped(128, 512, 512)).shape == (n, 128, 512)
    assert ops.encode_kv(mx.zeros((n, 16, 256)), "q8_0").shape == (n, 16, 136)
    assert ops.embed(shaped(262144, 5376), range(n)).shape == (n, 5376)
    assert ops.glu(mx.zeros((n, 28672)), mx.zeros((n, 28672)), "silu").shape == (n, 28672)
