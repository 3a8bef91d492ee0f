"""Gemma: scaled embeddings and GELU; from 2 on norms after each sub-block and sliding windows; softcaps in 2,
query and key norms and a rope base per kind of layer in 3.

The converter stores RMSNorm weights with their 1 already added.
"""

from __future__ import annotations

from typing import Any

from localinfer.models.config import AttentionConfig
from localinfer.models.families.base import Architecture
from localinfer.models.metadata import ArchKeys


class Gemma(Architecture):
    activation = "gelu"

    def scales(self, keys: ArchKeys, n_layers: int) -> dict[str, Any]:
        return super().scales(keys, n_layers) | {"embedding_scale": keys.count("embedding_length") ** 0.5}


class Gemma2(Gemma):
    window_period = 2
    layers_of_27b = 46

    def attention_scale(self, keys: ArchKeys, d_k: int) -> float:
        """The 27B model, known by its layers, scales by the width per head, which is not its head size."""
        if keys.integer("block_count") == self.layers_of_27b:
            return (keys.integer("embedding_length") / keys.integer("attention.head_count")) ** -0.5
        return d_k**-0.5


class Gemma3(Gemma2):
    window_period = 6
    layers_of_27b = 62
    scales_sliding_rope = False

    def rope_base(self, keys: ArchKeys, attention: AttentionConfig) -> float:
        if attention.window:
            return keys.number("rope.freq_base_swa", 10000.0)
        return super().rope_base(keys, attention)
