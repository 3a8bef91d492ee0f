"""How each platform's backend uses memory, as far as a plan depends on it: PlatformRules, one a platform."""

from __future__ import annotations

from localinfer.records import dataclass, replace
from localinfer.units import MIB


@dataclass(frozen=True)
class PlatformRules:
    """What a backend copies, prepares, and writes out. Fixed bytes are first guesses that the ledger corrects."""

    weights: str  # where they are, for people
    decoded_value_bytes: int  # every matrix value is decoded into a copy of this many bytes; 0: raw blocks are used
    prepares_activations: bool
    fuses_attention: bool
    unfused_head_sizes: tuple[int, ...]  # fused attention gives up on these with more than 8 queries
    score_bytes: int  # of one attention score that is written out
    runtime_bytes: int  # interpreter and libraries: what a process holds without a model
    v_beside_k: bool  # values that are part of keys (MLA) are stored once more
    score_tile_bytes: int = 0  # scores are written out a tile at a time, at most so many bytes; 0: all at once
    block_types: tuple[str, ...] = ()  # multiplied from their blocks, others decoded at load, 2 bytes a value; (): all
    decode_tile_bytes: int = 0  # a prompt's products decode quantized matrices in tiles of at most so many bytes
    copies_ahead: bool = True  # paged weights come while others are multiplied; False: one waits for the other
    sorts_experts: bool = False  # each pair of token and expert is a row of its own, in the experts' order and back
    cache_bytes: int = 0  # freed buffers that the library keeps, at most, and never over CACHE_SHARE of the memory

    def cache_limit(self, usable_bytes: int) -> int:
        """What MLX may keep of freed buffers on a device that may use so much (backends/mlx/device.py sets it)."""
        return min(self.cache_bytes, max(usable_bytes // CACHE_SHARE, 64 * MIB))


# As localinfer/backends/mlx/kernels.py, which must not be imported from here; a test compares the two.
MLX_BLOCK_TYPES = (
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
    "IQ4_XS", "MXFP4",
)  # fmt: skip
# Three arrays of one tile of float32 scores (backends/mlx/gpu_attention.py, TILE_BYTES).
MLX_SCORE_TILE_BYTES = 3 * 64 * MIB
# One tile of a decoded matrix (backends/mlx/gpu_linear.py, TILE_BYTES), and how many can be alive: MLX gives a buffer
# back when its command buffer is done, and commits one at 40 to 50 MB of inputs (MLX_MAX_MB_PER_BUFFER): two under way
# with two tiles each. Derived, not measured.
MLX_DECODE_TILE_BYTES = 32 * MIB
DECODE_TILES = 4
# backends/mlx/device.py: CACHE_BYTES, and a 32nd of the memory.
MLX_CACHE_BYTES = 512 * MIB
CACHE_SHARE = 32

MLX_LM_BYTES = 64 * MIB  # mlx-lm and the packages that it imports, measured

RULES: dict[str, PlatformRules] = {
    # Weights are mapped, and multiplied from where they are.
    "cpu": PlatformRules(
        weights="mapped from the file",
        decoded_value_bytes=0,
        prepares_activations=True,
        fuses_attention=True,
        unfused_head_sizes=(),
        score_bytes=4,
        runtime_bytes=30 * MIB,
        v_beside_k=True,
    ),
    # Metal adopts the mapped pages. MLX's fused attention has no kernel for chunks at head sizes 192 and 256
    # (mlx/backend/metal/scaled_dot_product_attention.cpp, v0.32): there the backend goes by tiles of scores.
    "metal": PlatformRules(
        weights="mapped from the file, adopted by Metal",
        decoded_value_bytes=0,
        prepares_activations=False,
        fuses_attention=True,
        unfused_head_sizes=(192, 256),
        score_bytes=2,
        runtime_bytes=400 * MIB,
        v_beside_k=False,
        score_tile_bytes=MLX_SCORE_TILE_BYTES,
        block_types=MLX_BLOCK_TYPES,
        decode_tile_bytes=MLX_DECODE_TILE_BYTES,
        sorts_experts=True,
        cache_bytes=MLX_CACHE_BYTES,
    ),
    # CUDA refuses host memory: one copy of the raw blocks on the device is the row "weights". MLX has neither pinned
    # host buffers nor copies on a stream of one's own (an array from host memory is copied at once, by the caller), so
    # a paged layer is copied, then multiplied.
    "cuda": PlatformRules(
        weights="copied to the device",
        decoded_value_bytes=0,
        prepares_activations=False,
        fuses_attention=True,
        unfused_head_sizes=(192, 256),
        score_bytes=2,
        runtime_bytes=700 * MIB,
        v_beside_k=False,
        score_tile_bytes=MLX_SCORE_TILE_BYTES,
        block_types=MLX_BLOCK_TYPES,
        decode_tile_bytes=MLX_DECODE_TILE_BYTES,
        sorts_experts=True,
        copies_ahead=False,
        cache_bytes=MLX_CACHE_BYTES,
    ),
    # mlx on a CPU: a path for checking. Every matrix is decoded to float32, nothing is fused.
    "mlx-cpu": PlatformRules(
        weights="mapped from the file",
        decoded_value_bytes=4,
        prepares_activations=False,
        fuses_attention=False,
        unfused_head_sizes=(),
        score_bytes=4,
        runtime_bytes=250 * MIB,
        v_beside_k=False,
        copies_ahead=False,
    ),
}


def rules_for(platform: str, mapped: bool) -> PlatformRules:
    """The platform's rules; models that are not mapped are loaded by mlx-lm: their matrices stay packed, and where
    attention is not fused all scores of a chunk are written out at once, masked and turned into weights."""
    rules = RULES[platform]
    if mapped:
        return rules
    return replace(
        rules, weights="loaded by mlx-lm", decoded_value_bytes=0, block_types=(), score_tile_bytes=0,
        decode_tile_bytes=0,
        score_bytes=3 * rules.score_bytes, prepares_activations=False, runtime_bytes=rules.runtime_bytes + MLX_LM_BYTES,
    )  # fmt: skip
