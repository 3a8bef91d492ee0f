"""LFM2's gated short convolution: three projections, a product, a few taps over time, another product."""

from __future__ import annotations

from localinfer.models.mixers.place import Place
from localinfer.models.ops import Array, Ops


def shortconv(ops: Ops, h: Array, at: Place) -> Array:
    """h (T, E) normalized -> (T, E)."""
    s, block = at.layer.state, at.block
    assert s is not None
    width = s.conv_channels
    bcx = ops.linear(h, block["shortconv.in_proj.weight"])
    b, c, x = bcx[:, :width], bcx[:, width : 2 * width], bcx[:, 2 * width :]
    mixed = ops.causal_conv(b * x, block["shortconv.conv.weight"], None, at.kv, at.index, s)
    return ops.linear(c * mixed, block["shortconv.out_proj.weight"])
