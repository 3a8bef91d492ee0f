"""Gemma: scaled embeddings and GELU; from 2 on norms after each sub-block and sliding windows; softcaps in 2,
query and key norms and a rope base per kind of layer in 3.

The converter stores RMSNorm weights with their 1 already added.
"""

from __future__ import annotations

from typing import Any

from localinfer.models.config import AttentionConfig
from localinfer.models.families.base import Architecture
from localinfer.models.metadata import ArchKeys
from localinfer.models.rope import RopeScaling


class Gemma(Architecture):
    activation = "gelu"

    def scales(self, keys: ArchKeys, n_layers: int) -> dict[str, Any]:
        return super().scales(keys, n_layers) | {"embedding_scale": keys.count("embedding_length") ** 0.5}


class Gemma2(Gemma):
    window_period = 2

    def attention_scale(self, keys: ArchKeys, d_k: int) -> float:
        """The 27B model (46 layers) scales by the width per head, which is not its head size."""
        if keys.integer("block_count") == 46:
            return (keys.integer("embedding_length") / keys.integer("attention.head_count")) ** -0.5
        return d_k**-0.5


class Gemma3(Gemma):
    window_period = 6

    def attention_scale(self, keys: ArchKeys, d_k: int) -> float:
        """As in Gemma 2, for the 27B model of 62 layers."""
        if keys.integer("block_count") == 62:
            return (keys.integer("embedding_length") / keys.integer("attention.head_count")) ** -0.5
        return d_k**-0.5

    def rope_base(self, keys: ArchKeys, attention: AttentionConfig) -> float:
        if attention.window:
            return keys.number("rope.freq_base_swa", 10000.0)
        return super().rope_base(keys, attention)

    def rope_scaling(self, keys: ArchKeys, attention: AttentionConfig) -> RopeScaling:
        """Only layers that see everything are stretched."""
        return RopeScaling() if attention.window else super().rope_scaling(keys, attention)
