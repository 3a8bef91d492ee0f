"""Attention on a GPU over stored keys and values, by three ways.

- few queries over block types, or with what MLX's fused attention lacks: the kernel `attend` in stretches of SPLIT
  slots, and `merge_attention`; keys and values are decoded in registers
- MLX's own fused attention over float16 where it has a kernel for the head size (sizes and limits as in
  mlx/backend/metal/scaled_dot_product_attention.cpp, v0.32)
- all else: an online softmax over tiles of slots, so that scores never take more than TILE_BYTES

Letters: T tokens, H query heads, G key/value heads, S slots, D head size.
"""

from __future__ import annotations

import math
from functools import lru_cache

import mlx.core as mx
import numpy as np

from localinfer.backends.mlx.kernels import BLOCKS, attention_kernel, plain_kernel
from localinfer.backends.mlx.kv import MLXKV, Slots
from localinfer.backends.mlx.launch import Launcher, ints, reals
from localinfer.backends.mlx.ops import visible
from localinfer.backends.reference.ops import alibi_slopes
from localinfer.formats.ggml_types import GGMLType
from localinfer.models.config import AttentionConfig

SMALL_QUERIES = 16
SPLIT = 256
TILE_BYTES = 64 * 2**20  # of one tile's float32 scores
MAX_TILE = 2048
FUSED_FEW = (64, 96, 128, 256)  # head sizes of MLX's vector kernel, up to 8 queries
FUSED_MANY = (64, 80, 96, 128)  # of its tiled kernel; at 192 and 256 it would write the scores out


class GpuAttention:
    def __init__(self, launcher: Launcher, half: mx.Dtype) -> None:
        self._gpu = launcher
        self._half = half
        self._none = mx.zeros((8,))

    def __call__(
        self, q: mx.array, kv: MLXKV, layer: int, slots: Slots, attn: AttentionConfig, sinks: mx.array | None
    ) -> mx.array:
        """q (T, H, Dk) float32 at position kv.length, over what `append` has just stored -> (T, H * Dv) float32."""
        if self._fused(q.shape[0], kv, layer, attn):
            return self._mlx_attention(q, kv, layer, slots, attn, sinks)
        if q.shape[0] <= SMALL_QUERIES and self._has_kernel(kv, layer):
            return self.attend(q, kv, layer, slots, attn, sinks)
        return self.tiled(q, kv, layer, slots, attn, sinks)

    def _fused(self, n: int, kv: MLXKV, layer: int, attn: AttentionConfig) -> bool:
        spec = kv.spec.layers[layer]
        if (spec.k_type, spec.v_type) != ("f16", "f16") or attn.softcap or attn.alibi_max_bias or attn.d_k != attn.d_v:
            return False
        if n <= 8:
            return attn.d_k in FUSED_FEW and n * attn.n_heads // attn.n_kv_heads <= 32
        return attn.d_k in FUSED_MANY

    def _has_kernel(self, kv: MLXKV, layer: int) -> bool:
        spec = kv.spec.layers[layer]
        return all(
            d % BLOCKS[GGMLType[t.upper()]].values == 0 for t, d in ((spec.k_type, spec.d_k), (spec.v_type, spec.d_v))
        )

    def _mlx_attention(
        self, q: mx.array, kv: MLXKV, layer: int, slots: Slots, attn: AttentionConfig, sinks: mx.array | None
    ) -> mx.array:
        keys, values = kv.read(layer, 0, slots.n_slots)
        n = q.shape[0]
        mask: mx.array | str | None = None
        if attn.window or attn.chunk or not slots.in_order:
            mask = _mask(kv.length, n, slots, attn)
        elif n > 1:
            mask = "causal"
        query = q.transpose(1, 0, 2)[None].astype(mx.float16)
        sink = None if sinks is None else sinks.astype(mx.float16)
        out = mx.fast.scaled_dot_product_attention(
            query, keys[None], values[None], scale=attn.scale, mask=mask, sinks=sink
        )
        return out[0].transpose(1, 0, 2).reshape(n, attn.n_heads * attn.d_v).astype(mx.float32)

    def attend(
        self, q: mx.array, kv: MLXKV, layer: int, slots: Slots, attn: AttentionConfig, sinks: mx.array | None
    ) -> mx.array:
        """The kernels."""
        spec, n, heads, groups = kv.spec.layers[layer], q.shape[0], attn.n_heads, attn.n_kv_heads
        keys, values = kv.stored(layer)
        v_type = spec.k_type if spec.v_in_k else spec.v_type
        n_splits = -(-slots.n_slots // SPLIT)
        vec, rows = attend_shape(attn.d_v, n * heads // groups)
        sizes = (n, heads, groups, kv.length, slots.n_slots, slots.ring, attn.window, attn.chunk, keys.shape[1])
        template = [
            ("ROWS", rows), ("DK", attn.d_k), ("DV", attn.d_v), ("VEC", vec), ("SPLIT", SPLIT),
            ("V_IN_K", int(spec.v_in_k)), ("SOFTCAP", int(attn.softcap > 0)), ("ALIBI", int(attn.alibi_max_bias > 0)),
        ]  # fmt: skip
        slopes = reals(*alibi_slopes(heads, attn.alibi_max_bias).tolist()) if attn.alibi_max_bias else self._none
        sums, stats = self._gpu.launch(
            attention_kernel(GGMLType[spec.k_type.upper()], GGMLType[v_type.upper()]),
            [q, keys, values, slopes, ints(*sizes), reals(attn.scale, attn.softcap)],
            template, (32 * n_splits, -(-n * heads // groups // rows), groups), (32, 1, 1),
            [(n * heads, n_splits, attn.d_v), (n * heads, n_splits, 2)], [mx.float32, mx.float32],
        )  # fmt: skip
        return self._gpu.launch(
            plain_kernel("merge_attention"),
            [sums, stats, self._none if sinks is None else sinks, ints(n_splits, heads)],
            [("DV", attn.d_v), ("SINKS", int(sinks is not None))],
            (32, n * heads, 1), (32, 1, 1), [(n, heads * attn.d_v)], [mx.float32],
        )[0]  # fmt: skip

    def tiled(
        self, q: mx.array, kv: MLXKV, layer: int, slots: Slots, attn: AttentionConfig, sinks: mx.array | None
    ) -> mx.array:
        """Scores of one tile of slots at a time; largest score, sum and weighted values are carried on in float32."""
        n, groups = q.shape[0], attn.n_kv_heads
        rows = attn.n_heads // groups * n  # of one key/value head, token by token within each query head
        query = q.transpose(1, 0, 2).reshape(groups, rows, attn.d_k).astype(self._half)
        top = mx.full((groups, rows, 1), -math.inf)
        if sinks is not None:
            top = mx.repeat(sinks.reshape(groups, -1), n, axis=1)[..., None]
        total = mx.zeros_like(top) if sinks is None else mx.ones_like(top)
        out = mx.zeros((groups, rows, attn.d_v))
        positions = slots.positions()
        for at, end in _tiles(slots.n_slots, attn.n_heads * n):
            keys, values = (x.astype(self._half) for x in kv.read(layer, at, end))
            scores = (query @ keys.swapaxes(-1, -2)).astype(mx.float32) * attn.scale
            scores = _masked(scores, kv.length, n, positions[at:end], attn)
            largest = mx.maximum(top, scores.max(axis=-1, keepdims=True))
            safe = mx.where(largest == -math.inf, 0.0, largest)
            weights, factor = mx.exp(scores - safe), mx.exp(top - safe)
            total = total * factor + weights.sum(axis=-1, keepdims=True)
            out = out * factor + (weights.astype(self._half) @ values).astype(mx.float32)
            top = largest
        out = (out / total).reshape(attn.n_heads, n, attn.d_v)
        return out.transpose(1, 0, 2).reshape(n, attn.n_heads * attn.d_v)


def attend_shape(d_v: int, n_rows: int) -> tuple[int, int]:
    """Values a lane reads at a time, and query rows a SIMD group: at most 32 sums a lane."""
    vec = 4 if d_v % 4 == 0 and d_v >= 128 else 2 if d_v % 2 == 0 and d_v >= 64 else 1
    own = -(-d_v // (32 * vec)) * vec
    rows = 8
    while rows > 1 and (rows * own > 32 or rows // 2 >= n_rows):
        rows //= 2
    return vec, rows


@lru_cache(maxsize=4)
def _mask(start: int, n: int, slots: Slots, attn: AttentionConfig) -> mx.array:
    """(T, S) bool, the same for all layers of a kind."""
    return mx.array(visible(start, n, slots.positions(), attn))


def _tiles(n_slots: int, n_queries: int) -> list[tuple[int, int]]:
    step = max(32, min(MAX_TILE, TILE_BYTES // (4 * n_queries)) // 32 * 32)
    return [(at, min(at + step, n_slots)) for at in range(0, n_slots, step)]


def _masked(scores: mx.array, start: int, n: int, positions: np.ndarray, attn: AttentionConfig) -> mx.array:
    """scores (G, H / G * T, tile) with softcap and alibi; -inf where a token may not look."""
    groups, rows, width = scores.shape
    scores = scores.reshape(groups, rows // n, n, width)
    if attn.softcap:
        scores = attn.softcap * mx.tanh(scores / attn.softcap)
    if attn.alibi_max_bias:
        distance = (positions[None, :] - np.arange(start, start + n)[:, None]).astype(np.float32)
        slopes = alibi_slopes(attn.n_heads, attn.alibi_max_bias).reshape(groups, -1, 1, 1)
        scores = scores + mx.array(slopes * distance)
    scores = mx.where(mx.array(visible(start, n, positions, attn)), scores, -math.inf)
    return scores.reshape(groups, rows, width)
