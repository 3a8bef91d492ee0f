"""Gemma: scaled embeddings, GELU, norms after each block, query/key norms, sliding windows with their own rope base.

The converter stores RMSNorm weights with their 1 already added.
"""

from __future__ import annotations

from localinfer.models.config import AttentionConfig, RopeConfig
from localinfer.models.families.base import Architecture
from localinfer.models.metadata import ArchKeys
from localinfer.models.rope import RopeScaling, rope_config


class Gemma3(Architecture):
    rope_style = "half"
    activation = "gelu"
    period = 6  # five sliding layers, then one that sees everything

    def scales(self, keys: ArchKeys, n_embd: int, n_layers: int) -> dict:
        return {"embedding_scale": n_embd**0.5, "logit_softcap": keys.float("final_logit_softcapping", 0.0)}

    def window(self, keys: ArchKeys, i: int, n_layers: int) -> int:
        return 0 if i % self.period == self.period - 1 else keys.int("attention.sliding_window", 0)

    def attention_scale(self, keys: ArchKeys, d_k: int) -> float:
        """The 27B model (62 layers) scales by the width per head, which is not its head size."""
        if keys.int("block_count") == 62:
            return (keys.int("embedding_length") / keys.int("attention.head_count")) ** -0.5
        return d_k**-0.5

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig:
        if not attention.window:
            return super().rope(keys, i, attention, n_ctx)
        base = keys.float("rope.freq_base_swa", 10000.0)
        return rope_config(attention.d_k, base, self.rope_style, RopeScaling())
