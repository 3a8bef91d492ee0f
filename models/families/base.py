"""What all families share: reading the usual metadata of a llama-like decoder into a ModelConfig.

A family overrides only what differs: the rope style, the activation, which layers slide, scales.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localinfer.errors import UnsupportedModel
from localinfer.models.config import Activation, AttentionConfig, LayerConfig, ModelConfig, MoEConfig, RopeStyle
from localinfer.models.metadata import ArchKeys, tensor_rows
from localinfer.models.rope import RopeScaling, rope_config

if TYPE_CHECKING:
    from localinfer.formats.gguf import GGUFFile
    from localinfer.models.config import RopeConfig


class Architecture:
    """A plain pre-norm decoder with grouped-query attention, RoPE and a gated feed-forward."""

    rope_style: RopeStyle = "half"
    activation: Activation = "silu"
    norm = "rms"

    def config(self, f: GGUFFile, n_ctx: int | None = None) -> ModelConfig:
        """`n_ctx` is the context that will be allocated: a few models choose their rope by it."""
        keys = ArchKeys(f, f.metadata.get_str("general.architecture"))
        n_layers = keys.count("block_count", at_most=4096)
        n_embd = keys.count("embedding_length")
        layers = tuple(self.layer(keys, i, n_layers, n_ctx) for i in range(n_layers))
        return ModelConfig(
            arch=keys.arch,
            name=f.metadata.get_str("general.name", ""),
            n_layers=n_layers,
            n_embd=n_embd,
            n_vocab=tensor_rows(f, "token_embd.weight", keys.int("vocab_size", 0)),
            n_ctx_train=keys.count("context_length", at_most=1 << 40),
            norm=self.norm,
            norm_eps=self.norm_eps(keys),
            layers=layers,
            rope_scaling=keys.str("rope.scaling.type", "linear" if "rope.scale_linear" in keys else "none"),
            **self.scales(keys, n_embd, n_layers),
        )

    def norm_eps(self, keys: ArchKeys) -> float:
        return keys.float("attention.layer_norm_rms_epsilon" if self.norm == "rms" else "attention.layer_norm_epsilon")

    def scales(self, keys: ArchKeys, n_embd: int, n_layers: int) -> dict:
        """Further ModelConfig fields: embedding_scale, residual_scale, logit_scale, logit_softcap, ..."""
        return {}

    def layer(self, keys: ArchKeys, i: int, n_layers: int, n_ctx: int | None) -> LayerConfig:
        attention = self.attention(keys, i, n_layers)
        return LayerConfig(
            kind="window" if attention.window else "full",
            attention=attention,
            rope=self.rope(keys, i, attention, n_ctx),
            n_ff=keys.per_layer("feed_forward_length", n_layers, 0)[i],
            activation=self.activation,
            moe=self.moe(keys, i),
        )

    def attention(self, keys: ArchKeys, i: int, n_layers: int) -> AttentionConfig:
        n_heads = keys.per_layer("attention.head_count", n_layers, at_least=1)[i]
        n_kv_heads = keys.per_layer("attention.head_count_kv", n_layers, n_heads, at_least=1)[i]
        n_embd = keys.count("embedding_length")
        d_k = keys.count("attention.key_length", max(1, n_embd // n_heads), at_most=1 << 16)
        d_v = keys.count("attention.value_length", max(1, n_embd // n_heads), at_most=1 << 16)
        if n_heads % n_kv_heads:
            raise keys.error("attention.head_count_kv", f"a divisor of the {n_heads} query heads", n_kv_heads)
        return AttentionConfig(
            n_heads, n_kv_heads, d_k, d_v,
            scale=self.attention_scale(keys, d_k),
            window=self.window(keys, i, n_layers),
            softcap=keys.float("attn_logit_softcapping", 0.0),
        )  # fmt: skip

    def attention_scale(self, keys: ArchKeys, d_k: int) -> float:
        return d_k**-0.5

    def window(self, keys: ArchKeys, i: int, n_layers: int) -> int:
        """Positions that layer i sees, itself included; 0 for all."""
        return 0

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig | None:
        n_dims = keys.count("rope.dimension_count", attention.d_k, at_most=attention.d_k)
        if n_dims % 2:
            raise keys.error("rope.dimension_count", "an even number", n_dims)
        scaling = RopeScaling.from_keys(keys, keys.int("context_length"))
        factors = keys.floats_of("rope_freqs.weight")
        return rope_config(n_dims, self.rope_base(keys, i), self.rope_style, scaling, factors)

    def rope_base(self, keys: ArchKeys, i: int) -> float:
        base = keys.float("rope.freq_base", 10000.0)
        if not base > 1.0:
            raise keys.error("rope.freq_base", "a number above 1", base)
        return base

    def moe(self, keys: ArchKeys, i: int) -> MoEConfig | None:
        n_experts = keys.int("expert_count", 0)
        if not n_experts:
            return None
        if f"blk.{i}.ffn_gate_inp.weight" not in keys.file.tensors:
            return None
        if f"blk.{i}.ffn_up_exps.weight" not in keys.file.tensors:
            raise UnsupportedModel(
                f"{keys.file.path}: blk.{i}: experts in separate tensors (files of 2023) are not supported",
                "use a newer conversion of this model",
            )
        return MoEConfig(
            n_experts=n_experts,
            n_used=keys.count("expert_used_count", at_most=n_experts),
            n_ff=keys.int("expert_feed_forward_length", 0) or keys.int("feed_forward_length"),
        )
