"""What the planner says of this backend, against the backend itself."""

from __future__ import annotations

import pytest

from localinfer.backends.mlx import device, gpu_linear
from localinfer.backends.mlx.gpu_attention import FUSED_MANY, TILE_BYTES
from localinfer.backends.mlx.kernels import BLOCKS
from localinfer.planner.platforms import MLX_DECODE_TILE_BYTES, MLX_SCORE_TILE_BYTES, RULES
from localinfer.units import GIB


def test_types_with_kernels_are_the_planners() -> None:
    for platform in ("metal", "cuda"):
        assert set(RULES[platform].block_types) == {t.name for t in BLOCKS}


def test_score_tiles_and_head_sizes_are_the_planners() -> None:
    assert MLX_SCORE_TILE_BYTES == 3 * TILE_BYTES
    for platform in ("metal", "cuda"):
        assert not set(RULES[platform].unfused_head_sizes) & set(FUSED_MANY)


def test_decoded_tiles_are_the_planners() -> None:
    assert MLX_DECODE_TILE_BYTES == gpu_linear.TILE_BYTES


@pytest.mark.parametrize("memory", [GIB, 8 * GIB, 16 * GIB, 96 * GIB])
def test_the_cache_limit_that_is_set_is_the_planners(memory, monkeypatch) -> None:
    set_to = []
    monkeypatch.setattr(device.mx, "set_cache_limit", set_to.append)
    monkeypatch.setattr(device.mx, "set_memory_limit", lambda n: None)
    device.set_limits(device.MLXDevice("metal", "a Mac", memory, device.HALF), 0)
    assert set_to == [RULES["metal"].cache_limit(memory)]
