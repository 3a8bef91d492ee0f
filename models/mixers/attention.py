"""Grouped-query attention, with what the file's tensors add: fused projections, query and key norms, a gate, sinks."""

from __future__ import annotations

from localinfer.models.config import AttentionConfig
from localinfer.models.mixers.place import Place
from localinfer.models.ops import Array, Ops


def attention(ops: Ops, h: Array, at: Place) -> Array:
    """h (T, E) normalized -> (T, E)."""
    a = at.layer.attention
    assert a is not None
    q, k, v = _qkv(ops, h, at, a)
    gate = None
    if q.shape[1] == 2 * a.n_heads * a.d_k:  # every head's query is followed by a gate for its output
        pairs = q.reshape(h.shape[0], a.n_heads, 2 * a.d_k)
        q, gate = ops.head_slice(pairs, 0, a.d_k), ops.head_slice(pairs, a.d_k, 2 * a.d_k)
    q = _placed(ops, q, at, "attn_q_norm", a.n_heads)
    k = _placed(ops, k, at, "attn_k_norm", a.n_kv_heads)
    if a.temperature_every:
        q = ops.position_scale(q, at.start, a.temperature_every, a.temperature_scale)
    v = v.reshape(h.shape[0], a.n_kv_heads, a.d_v)
    out = ops.attention(q, k, v, at.kv, at.index, a, at.block.get("attn_sinks.weight"))
    if gate is not None:
        out = out * ops.activate(gate, "sigmoid").reshape(h.shape[0], a.n_heads * a.d_v)
    return at.block.linear(ops, out, "attn_output")


def _qkv(ops: Ops, h: Array, at: Place, a: AttentionConfig) -> tuple[Array, Array, Array]:
    """Three projections, or one fused one cut in three."""
    block = at.block
    if "attn_qkv.weight" not in block:
        return block.linear(ops, h, "attn_q"), block.linear(ops, h, "attn_k"), block.linear(ops, h, "attn_v")
    fused = block.linear(ops, h, "attn_qkv")
    n_q, n_k = a.n_heads * a.d_k, a.n_kv_heads * a.d_k
    return fused[:, :n_q], fused[:, n_q : n_q + n_k], fused[:, n_q + n_k :]


def _placed(ops: Ops, x: Array, at: Place, norm: str, n_heads: int) -> Array:
    """Queries or keys -> (T, H, D), rotated and normalized in the order the model has."""
    order, rope = at.model.head_norm, at.layer.rope
    if order == "before_rope":
        x = _head_norm(ops, x, at, norm, n_heads)
    x = x.reshape(x.shape[0], n_heads, -1)
    if rope is not None:
        x = ops.rope(x, at.start, rope)
    if order == "after_rope":
        x = _head_norm(ops, x, at, norm, n_heads)
    if order == "after_rope_unweighted" and rope is not None:
        x = ops.rms_norm(x, None, at.model.norm_eps)
    return x


def _head_norm(ops: Ops, x: Array, at: Place, name: str, n_heads: int) -> Array:
    """Where the file has one: over each head, or (a weight as long as all heads) over the whole row."""
    w = at.block.get(f"{name}.weight")
    if w is None:
        return x
    n = x.shape[0]
    width = x.shape[1] if len(x.shape) == 2 else x.shape[1] * x.shape[2]
    whole_row = len(w.shape) == 1 and w.shape[0] == width
    x = x.reshape(n, width) if whole_row else x.reshape(n, n_heads, -1)
    return at.block.norm(ops, x, name, at.model)
