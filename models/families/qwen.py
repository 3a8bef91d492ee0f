"""Qwen 2 and 3, dense and mixture of experts."""

from __future__ import annotations

from localinfer.models.families.base import Architecture


class Qwen(Architecture):
    """Qwen2 has biases, Qwen3 query and key norms: the decoder sees that from the tensors."""


class Qwen2MoE(Architecture):
    moe_normalize = False
