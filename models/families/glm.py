"""ChatGLM and GLM-4."""

from __future__ import annotations

from localinfer.models.families.base import Architecture


class GLM4(Architecture):
    """ChatGLM too: partly rotated in neighbouring pairs; gate and up in one matrix."""

    rope_style = "interleaved"


class GLM4MoE(Architecture):
    ffn_norm = "post_attention_norm"
    moe_gating = "sigmoid"
