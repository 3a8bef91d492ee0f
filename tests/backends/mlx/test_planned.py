"""What the planner says of this backend, against the backend itself."""

from __future__ import annotations

from localinfer.backends.mlx.gpu_attention import FUSED_MANY, TILE_BYTES
from localinfer.backends.mlx.kernels import BLOCKS
from localinfer.planner.platforms import MLX_SCORE_TILE_BYTES, RULES


def test_types_with_kernels_are_the_planners() -> None:
    for platform in ("metal", "cuda"):
        assert set(RULES[platform].block_types) == {t.name for t in BLOCKS}


def test_score_tiles_and_head_sizes_are_the_planners() -> None:
    assert MLX_SCORE_TILE_BYTES == 3 * TILE_BYTES
    for platform in ("metal", "cuda"):
        assert not set(RULES[platform].unfused_head_sizes) & set(FUSED_MANY)
