"""The choice of experts in MLX operations, so that a GPU need not wait for the host. Reference: reference/ops.route."""

from __future__ import annotations

import math

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


def _best_groups(ranked: mx.array, moe: MoEConfig) -> mx.array:
    """A group is worth the sum of its two best experts; experts outside the best groups drop out."""
    n = ranked.shape[0]
    groups = ranked.reshape(n, moe.n_groups, -1)
    worth = mx.sort(groups, axis=-1)[..., -2:].sum(axis=-1)
    rank = mx.argsort(mx.argsort(-worth, axis=-1), axis=-1)  # place of each group in that order
    return mx.where((rank < moe.n_groups_used)[..., None], groups, -math.inf).reshape(n, -1)
