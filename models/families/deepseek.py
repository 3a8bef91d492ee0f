"""DeepSeek V2 and V3, and R1, V2-Lite, Kimi K2, GLM-4.7-Flash, which share the name: latent attention, many experts."""

from __future__ import annotations

import math

from localinfer.models.config import AttentionConfig, Gating, LayerConfig, MLAConfig
from localinfer.models.families.base import Architecture
from localinfer.models.families.llama import Llama
from localinfer.models.metadata import ArchKeys
from localinfer.models.rope import RopeScaling
from localinfer.records import replace


class DeepSeek(Llama):
    """The first DeepSeek MoE: plain attention, many small experts and shared ones."""

    moe_normalize = False


class Dots1(Architecture):
    moe_normalize = False


class DeepSeek2(Architecture):
    rope_style = "interleaved"
    moe_normalize = False

    def layer(self, keys: ArchKeys, i: int, n_layers: int, n_ctx: int | None) -> LayerConfig:
        m = self._mla(keys)
        attention = self.attention(keys, i, n_layers)
        plain = super().layer(keys, i, n_layers, n_ctx)
        return replace(plain, kind="mla" if m.absorbed else "full", mixers=("mla",), attention=attention, mla=m)

    def _mla(self, keys: ArchKeys) -> MLAConfig:
        absorbed = "attention.key_length_mla" in keys
        suffix = "_mla" if absorbed else ""
        return MLAConfig(
            kv_rank=keys.count("attention.kv_lora_rank"),
            n_rope=keys.count("rope.dimension_count"),
            d_k=keys.count(f"attention.key_length{suffix}"),
            d_v=keys.count(f"attention.value_length{suffix}"),
            absorbed=absorbed,
        )

    def attention(self, keys: ArchKeys, i: int, n_layers: int) -> AttentionConfig:
        m = self._mla(keys)
        n_heads = keys.per_layer("attention.head_count", n_layers, at_least=1)[i]
        scale = self._magnitude(keys) ** 2 * m.d_k**-0.5
        if m.absorbed:
            return AttentionConfig(n_heads, 1, m.kv_rank + m.n_rope, m.kv_rank, scale, v_in_k=True)
        return AttentionConfig(n_heads, n_heads, m.d_k, m.d_v, scale)

    def _magnitude(self, keys: ArchKeys) -> float:
        """Yarn's factor on queries and keys. With `yarn_log_multiplier` it applies to the scores alone, else to the
        rotated part too (as llama.cpp does for files without that key)."""
        scaling = RopeScaling.from_keys(keys)
        if scaling.kind != "yarn" or scaling.factor <= 1.0:
            return 1.0
        return 1.0 + keys.number("rope.scaling.yarn_log_multiplier", 0.1) * math.log(scaling.factor)

    def rope_scaling(self, keys: ArchKeys, attention: AttentionConfig) -> RopeScaling:
        scaling = super().rope_scaling(keys, attention)
        if scaling.kind == "yarn" and "rope.scaling.yarn_log_multiplier" in keys:
            return replace(scaling, attention_factor=1.0 / (1.0 + 0.1 * math.log(scaling.factor)))
        return scaling

    def gating(self, keys: ArchKeys) -> Gating:
        """Files from before the key: softmax, except GLM-4.7-Flash, known by its vocabulary."""
        glm = keys.integer("vocab_size", 0) == 154880 and keys.integer("block_count") in (47, 48)
        return "sigmoid" if glm and "expert_gating_func" not in keys else super().gating(keys)
