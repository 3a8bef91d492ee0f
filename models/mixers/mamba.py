"""Selective state spaces: Mamba (arXiv 2312.00752) and Mamba 2 (arXiv 2405.21060).

Letters: C inner width, H heads, P = C/H values a head, G groups, N state size. Mamba 1 is the case P = 1, G = 1.
"""

from __future__ import annotations

from localinfer.models.mixers.place import Place
from localinfer.models.ops import Array, Ops, ScanWeights


def mamba(ops: Ops, h: Array, at: Place) -> Array:
    """h (T, E) normalized -> (T, E)."""
    s, block = at.layer.state, at.block
    assert s is not None
    n, inner, width = h.shape[0], s.n_heads, s.d_state
    projected = block.linear(ops, h, "ssm_in")
    x, z = projected[:, :inner], projected[:, inner:]
    x = ops.activate(_conv(ops, x, at), "silu")

    mixed = ops.linear(x, block["ssm_x.weight"])
    rank = mixed.shape[1] - 2 * width
    dt = _normed(ops, mixed[:, :rank], at, "ssm_dt_norm")
    b = _normed(ops, mixed[:, rank : rank + width], at, "ssm_b_norm").reshape(n, 1, width)
    c = _normed(ops, mixed[:, rank + width :], at, "ssm_c_norm").reshape(n, 1, width)
    dt = ops.linear(dt, block["ssm_dt.weight"])
    y = ops.scan(x.reshape(n, inner, 1), dt, b, c, _scan_weights(at), at.kv, at.index, s)
    return ops.linear(ops.glu(z, y.reshape(n, inner), "silu"), block["ssm_out.weight"])


def mamba2(ops: Ops, h: Array, at: Place) -> Array:
    """h (T, E) normalized -> (T, E)."""
    s, block = at.layer.state, at.block
    assert s is not None
    n, inner, groups = h.shape[0], s.n_heads * s.d_head, s.n_groups * s.d_state
    projected = block.linear(ops, h, "ssm_in")
    z, xbc, dt = (
        projected[:, :inner],
        projected[:, inner : inner + s.conv_channels],
        projected[:, inner + s.conv_channels :],
    )
    xbc = ops.activate(_conv(ops, xbc, at), "silu")
    x = xbc[:, :inner].reshape(n, s.n_heads, s.d_head)
    b = xbc[:, inner : inner + groups].reshape(n, s.n_groups, s.d_state)
    c = xbc[:, inner + groups :].reshape(n, s.n_groups, s.d_state)
    y = ops.scan(x, dt, b, c, _scan_weights(at), at.kv, at.index, s).reshape(n, inner)
    y = ops.glu(z, y, "silu")
    if "ssm_norm.weight" in block:  # (G, C/G)
        y = ops.rms_norm(y.reshape(n, s.n_groups, inner // s.n_groups), block["ssm_norm.weight"], at.model.norm_eps)
        y = y.reshape(n, inner)
    return block.linear(ops, y, "ssm_out")


def _conv(ops: Ops, x: Array, at: Place) -> Array:
    assert at.layer.state is not None
    weight, bias = at.block["ssm_conv1d.weight"], at.block.get("ssm_conv1d.bias")
    return ops.causal_conv(x, weight, bias, at.kv, at.index, at.layer.state)


def _scan_weights(at: Place) -> ScanWeights:
    return ScanWeights(at.block["ssm_a"], at.block["ssm_dt.bias"], at.block["ssm_d"])


def _normed(ops: Ops, x: Array, at: Place, name: str) -> Array:
    """Jamba and FalconMamba normalize dt, b and c."""
    return at.block.norm_if_present(ops, x, name, at.model)
