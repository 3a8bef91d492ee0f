"""Multi-head latent attention (DeepSeek V2): keys and values are expanded from one compressed row a token.

Absorbed, the expansion moves into the query and the output: attention runs over the compressed rows themselves with
one key/value head, and only they are stored. Files of the first conversions lack the matrices for that; there keys
and values are expanded and stored per head.
"""

from __future__ import annotations

from localinfer.models.mixers.place import Place
from localinfer.models.ops import Array, Ops


def mla(ops: Ops, h: Array, at: Place) -> Array:
    """h (T, E) normalized -> (T, E)."""
    m, a, block = at.layer.mla, at.layer.attention, at.block
    assert m is not None and a is not None and at.layer.rope is not None
    n, n_nope = h.shape[0], m.d_k - m.n_rope
    q = _queries(ops, h, at).reshape(n, a.n_heads, m.d_k)
    q_nope = ops.head_slice(q, 0, n_nope)
    q_rope = ops.rope(ops.head_slice(q, n_nope, m.d_k), at.start, at.layer.rope)

    row = block.linear(ops, h, "attn_kv_a_mqa")
    latent = block.norm(ops, row[:, : m.kv_rank], "attn_kv_a_norm", at.model)
    k_rope = ops.rope(row[:, m.kv_rank :].reshape(n, 1, m.n_rope), at.start, at.layer.rope)

    if m.absorbed:
        query = ops.head_concat(ops.head_linear(q_nope, block["attn_k_b.weight"]), q_rope)
        key = ops.head_concat(latent.reshape(n, 1, m.kv_rank), k_rope)
        out = ops.attention(query, key, None, at.kv, at.index, a)
        out = ops.head_linear(out.reshape(n, a.n_heads, m.kv_rank), block["attn_v_b.weight"])
        out = out.reshape(n, a.n_heads * m.d_v)
    else:
        expanded = block.linear(ops, latent, "attn_kv_b").reshape(n, a.n_heads, n_nope + m.d_v)
        key = ops.head_concat(ops.head_slice(expanded, 0, n_nope), k_rope)
        value = ops.head_slice(expanded, n_nope, n_nope + m.d_v)
        out = ops.attention(ops.head_concat(q_nope, q_rope), key, value, at.kv, at.index, a)
    return block.linear(ops, out, "attn_output")


def _queries(ops: Ops, h: Array, at: Place) -> Array:
    """One projection, or two with a norm between them."""
    if "attn_q.weight" in at.block:
        return at.block.linear(ops, h, "attn_q")
    low = at.block.norm(ops, at.block.linear(ops, h, "attn_q_a"), "attn_q_a_norm", at.model)
    return at.block.linear(ops, low, "attn_q_b")
