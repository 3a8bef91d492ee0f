"""Gated delta net (arXiv 2412.06464) as in Qwen3-Next and Qwen3.5.

Letters: G key heads, H value heads, N key size, P value size.
"""

from __future__ import annotations

from localinfer.models.mixers.place import Place
from localinfer.models.ops import Array, Ops, ScanWeights


def delta(ops: Ops, h: Array, at: Place) -> Array:
    """h (T, E) normalized -> (T, E)."""
    s, block = at.layer.state, at.block
    assert s is not None
    n, keys, values = h.shape[0], s.n_groups * s.d_state, s.n_heads * s.d_head
    qkv = ops.linear(h, block["attn_qkv.weight"])
    z = ops.linear(h, block["attn_gate.weight"])
    beta, alpha = _beta_alpha(ops, h, at)
    qkv = ops.activate(ops.causal_conv(qkv, block["ssm_conv1d.weight"], None, at.kv, at.index, s), "silu")
    q = qkv[:, :keys].reshape(n, s.n_groups, s.d_state)
    k = qkv[:, keys : 2 * keys].reshape(n, s.n_groups, s.d_state)
    v = qkv[:, 2 * keys :].reshape(n, s.n_heads, s.d_head)
    w = ScanWeights(block["ssm_a"], block["ssm_dt.bias"])
    y = ops.delta_rule(q, k, v, alpha, beta, w, at.kv, at.index, s, at.model.norm_eps)
    y = ops.rms_norm(y, block["ssm_norm.weight"], at.model.norm_eps).reshape(n, values)
    return ops.linear(ops.glu(z, y, "silu"), block["ssm_out.weight"])


def _beta_alpha(ops: Ops, h: Array, at: Place) -> tuple[Array, Array]:
    """(T, H) each: two projections, or one that holds, per key head, its betas and then its alphas."""
    s = at.layer.state
    assert s is not None
    if "ssm_ba.weight" not in at.block:
        return ops.linear(h, at.block["ssm_beta.weight"]), ops.linear(h, at.block["ssm_alpha.weight"])
    n, per_group = h.shape[0], s.n_heads // s.n_groups
    both = ops.linear(h, at.block["ssm_ba.weight"]).reshape(n, s.n_groups, 2 * per_group)
    return (
        ops.head_slice(both, 0, per_group).reshape(n, s.n_heads),
        ops.head_slice(both, per_group, 2 * per_group).reshape(n, s.n_heads),
    )
