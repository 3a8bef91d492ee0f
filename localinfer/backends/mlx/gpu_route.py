"""The choice of experts, and the order in which they take their tokens, in MLX operations: a GPU need not wait for the
host. Reference: reference/ops.route.

Letters: P pairs of a token and one of its experts; E experts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx

from localinfer.models.config import MoEConfig

_SMALLEST_SUM = 6.103515625e-5  # llama.cpp's guard, the smallest normal float16


def route(logits: mx.array, moe: MoEConfig, bias: mx.array | None) -> tuple[mx.array, mx.array]:
    """Router logits (T, n_experts) -> chosen experts (T, n_used) int32, best first, and their weights float32."""
    if moe.gating == "softmax_after_topk":
        probs = logits
    else:
        probs = mx.sigmoid(logits) if moe.gating == "sigmoid" else mx.softmax(logits, axis=-1, precise=True)
    ranked = probs if bias is None else probs + bias
    if moe.n_groups > 1:
        ranked = _best_groups(ranked, moe)
    chosen = mx.argsort(-ranked, axis=-1)[:, : moe.n_used]
    weights = mx.take_along_axis(probs, chosen, axis=-1)
    if moe.gating == "softmax_after_topk":
        weights = mx.softmax(weights, axis=-1, precise=True)
    if moe.normalize:
        weights = weights / mx.maximum(weights.sum(axis=-1, keepdims=True), _SMALLEST_SUM)
    return chosen.astype(mx.int32), weights * moe.scale


@dataclass(frozen=True)
class Sorted:
    """Pairs by expert. `tiles` (n, 3) int32 cuts them up: expert, first pair, pairs (at most `width`; 0 in tiles that
    are left over, since only the device knows how many there are)."""

    order: mx.array  # (P,) which pair comes first, second, ...
    experts: mx.array  # (P,) of the sorted pairs
    tiles: mx.array
    width: int

    @property
    def back(self) -> mx.array:
        """(P,) where each pair went."""
        return mx.argsort(self.order)


def by_expert(chosen: mx.array, n_experts: int, width: int) -> Sorted:
    """chosen (P,) int32 -> its pairs by expert, in tiles of `width`."""
    n_pairs = chosen.size
    ids = mx.arange(n_experts)
    order = mx.argsort(chosen)
    count = (chosen[None, :] == ids[:, None]).sum(axis=1)  # (E,)
    first = mx.cumsum(count) - count
    n_of = (count + (width - 1)) // width
    end = mx.cumsum(n_of)
    n_tiles = n_pairs // width + min(n_experts, n_pairs)  # at most
    tile = mx.arange(n_tiles)
    expert = mx.minimum((end[None, :] <= tile[:, None]).sum(axis=1), n_experts - 1)
    at = (tile - (end - n_of)[expert]) * width
    size = mx.clip(count[expert] - at, 0, width)
    tiles = mx.stack([expert, first[expert] + at, size], axis=1).astype(mx.int32)
    return Sorted(order, chosen[order], tiles, width)


def one_by_one(experts: mx.array) -> Sorted:
    """Each pair a tile of its own, in the order they come."""
    pairs = mx.arange(experts.size)
    return Sorted(pairs, experts, mx.stack([experts, pairs, mx.ones_like(pairs)], axis=1).astype(mx.int32), 1)


def _best_groups(ranked: mx.array, moe: MoEConfig) -> mx.array:
    """A group is worth the sum of its two best experts; experts outside the best groups drop out."""
    n = ranked.shape[0]
    groups = ranked.reshape(n, moe.n_groups, -1)
    worth = mx.sort(groups, axis=-1)[..., -2:].sum(axis=-1)
    rank = mx.argsort(mx.argsort(-worth, axis=-1), axis=-1)  # place of each group in that order
    return mx.where((rank < moe.n_groups_used)[..., None], groups, -math.inf).reshape(n, -1)
