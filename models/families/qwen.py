"""Qwen 2 and 3, dense and mixture of experts."""

from __future__ import annotations

from localinfer.models.families.base import Architecture


class Qwen(Architecture):
    """Qwen2 has biases, Qwen3 query and key norms: the decoder sees that from the tensors. The text half of the VL
    models is the same: their rope has sections, but a text's tokens have one position in all of them."""


class Qwen2MoE(Architecture):
    moe_normalize = False
