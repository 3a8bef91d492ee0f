"""What attention writes out beside its result, as a function of context: it is the one part of scratch that grows.

On the cpu the keys are walked in spans; where few rows leave threads idle, spans are shared out and each leaves a
partial result (cpu_kernels/attention.c has the same figures). On a GPU scores are written out where attention is not
fused.
"""

from __future__ import annotations

from localinfer.models.config import AttentionConfig
from localinfer.planner.platforms import PlatformRules

CHUNK = 256  # positions that are attended at a time; also a span below NEAR positions and in windowed layers
NEAR, FAR_SPAN = 4096, 1024
SPLIT_ROWS = 512  # query rows (tokens times heads) up to which spans are shared out
SCORE_ROW = 272  # floats from one row of scores to the next
ALIGN = 64


def attention_bytes(a: AttentionConfig, n_ctx: int, chunk: int, threads: int, rules: PlatformRules) -> int:
    """Scratch of one attention layer for chunks of `chunk` tokens that end at or below n_ctx."""
    if rules.prepares_activations:
        return threads * _thread_part(a) + (_partial_results(a, n_ctx, chunk) if threads > 1 else 0)
    fused = rules.fuses_attention and not a.softcap and not a.alibi_max_bias
    if fused and a.d_k not in rules.unfused_head_sizes:
        return 0
    scores = a.n_heads * chunk * n_ctx * rules.score_bytes
    return min(scores, rules.score_tile_bytes) if rules.score_tile_bytes else scores


def _partial_results(a: AttentionConfig, n_ctx: int, chunk: int) -> int:
    """A softmax (8 floats) and d_v values for each row and span."""
    n_tokens = min(chunk, SPLIT_ROWS // a.n_heads)
    near = min(n_ctx, NEAR) if not a.window else n_ctx
    n_spans = -(-near // CHUNK) + -(-(n_ctx - near) // FAR_SPAN)
    if a.window:
        n_spans = min(n_spans, (a.window + n_tokens - 1) // CHUNK + 2)
    return n_tokens * a.n_heads * n_spans * (8 + _up(a.d_v, 8)) * 4


def _thread_part(a: AttentionConfig) -> int:
    """Queries, scores, one page of keys or values, three accumulators, and the rows' softmax state."""
    rows = 96 if a.d_k <= 128 and a.d_v <= 128 else 48
    width, widest = _up(a.d_v, 8), max(_up(a.d_k, 8), _up(a.d_v, 8))
    blocks = -(-a.d_k // 32)
    parts = (
        (rows + 1) * a.d_k * 4, rows * a.d_k * 2, rows * blocks * 4, rows * SCORE_ROW * 4,
        16 * (widest + -(-widest // 32)) * 4, *[rows * width * 4] * 3, *[rows * 8] * 3, rows * 20,
    )  # fmt: skip
    return sum(_up(n, ALIGN) for n in parts)


def _up(n: int, step: int) -> int:
    return -(-n // step) * step
