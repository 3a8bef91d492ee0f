"""gpt-oss: attention sinks, every other layer slides, a clamped gate, experts with biases."""

from __future__ import annotations

from localinfer.models.families.base import Architecture


class GptOss(Architecture):
    activation = "swiglu_oai"
    ffn_norm = "post_attention_norm"
    window_period = 2
    moe_gating = "softmax_after_topk"
    moe_normalize = False
