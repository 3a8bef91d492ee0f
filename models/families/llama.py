"""Llama and its near kin: what calls itself llama in GGUF (Llama 1 to 3, Mistral, Mixtral, SmolLM2, TinyLlama, Yi),
and models that differ from it by a fact or two."""

from __future__ import annotations

from typing import Any

from localinfer.models.config import AttentionConfig, MoEConfig, RopeConfig
from localinfer.models.families.base import Architecture
from localinfer.models.metadata import ArchKeys
from localinfer.records import replace


class Llama(Architecture):
    rope_style = "interleaved"  # the converter permutes Q and K rows for it


class Arcee(Llama):
    """AFM: a feed-forward without a gate."""

    activation = "relu2"


class SmolLM3(Llama):
    """Every fourth layer is not rotated."""

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig | None:
        return None if i % 4 == 3 else super().rope(keys, i, attention, n_ctx)


class Llama4(Llama):
    """Chunked attention on rotated layers; queries of the others grow with the position; weights before experts."""

    moe_gating = "sigmoid"
    moe_normalize = False
    chunk = 8192  # fixed, whatever the file says

    def scales(self, keys: ArchKeys, n_layers: int) -> dict[str, Any]:
        unweighted = keys.integer("expert_count", 0) != 128  # the 128-expert model has no norm here
        return super().scales(keys, n_layers) | ({"head_norm": "after_rope_unweighted"} if unweighted else {})

    def attention(self, keys: ArchKeys, i: int, n_layers: int) -> AttentionConfig:
        plain = super().attention(keys, i, n_layers)
        if i % 4 == 3:
            return replace(plain, temperature_every=self.chunk, temperature_scale=0.1)
        return replace(plain, chunk=self.chunk)

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig | None:
        return super().rope(keys, i, attention, n_ctx) if attention.chunk else None

    def moe(self, keys: ArchKeys, i: int) -> MoEConfig | None:
        moe = super().moe(keys, i)
        return moe and replace(moe, weigh_input=True)


class Baichuan(Llama):
    """The 13B model (40 layers) has linear biases instead of rotation."""

    def attention(self, keys: ArchKeys, i: int, n_layers: int) -> AttentionConfig:
        plain = super().attention(keys, i, n_layers)
        return replace(plain, alibi_max_bias=8.0) if n_layers == 40 else plain

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig | None:
        return None if attention.alibi_max_bias else super().rope(keys, i, attention, n_ctx)


class MiniCPM(Llama):
    """Scales of the maximal-update parametrization; files from before they were metadata mean these defaults."""

    divide_logits = True

    def scales(self, keys: ArchKeys, n_layers: int) -> dict[str, Any]:
        n_embd = keys.count("embedding_length")
        return super().scales(keys, n_layers) | {
            "embedding_scale": keys.number("embedding_scale", 12.0),
            "residual_scale": keys.number("residual_scale", 1.4 / n_layers**0.5),
            "logit_scale": 1.0 / keys.number("logit_scale", 256.0 / n_embd),
        }


class Granite(Llama):
    """Scales on embeddings, residuals and logits; `rope.scaling.finetuned` = false switches rotation off."""

    divide_logits = True

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig | None:
        rotated = keys.flag("rope.scaling.finetuned", True)
        return super().rope(keys, i, attention, n_ctx) if rotated else None


class SeedOSS(Architecture):
    ffn_norm = "post_attention_norm"


class Exaone4(Architecture):
    """Norms only after sub-blocks. The 32B model (64 layers) slides in three of four layers and rotates only those."""

    def window(self, keys: ArchKeys, i: int) -> int:
        if keys.integer("block_count") != 64 or i % 4 == 3:
            return 0
        return keys.integer("attention.sliding_window", 4096)

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig | None:
        rotated = attention.window or keys.integer("block_count") != 64
        return super().rope(keys, i, attention, n_ctx) if rotated else None


class HunYuan(Architecture):
    head_norm = "after_rope"


class Olmo2(Architecture):
    """Norms only after sub-blocks, query and key norms over the whole row. OLMo 3 slides in three of four layers."""

    window_period = 4
    scales_sliding_rope = False


class OlmoE(Architecture):
    moe_normalize = False


class Cohere(Architecture):
    """Command-R: LayerNorm without bias, attention and feed-forward side by side, logits scaled."""

    norm = "layer"
    rope_style = "interleaved"
    parallel_residual = True


class Cohere2(Cohere):
    window_period = 4
    global_rope = False
