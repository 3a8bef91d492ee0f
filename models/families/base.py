"""What all families share: reading the usual metadata of a llama-like decoder into a ModelConfig.

A family overrides only what differs: the rope style, the activation, which layers slide, scales.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Literal

from localinfer.errors import UnsupportedModel
from localinfer.models.config import (
    Activation,
    AttentionConfig,
    Gating,
    LayerConfig,
    LayerKind,
    ModelConfig,
    MoEConfig,
    RopeConfig,
    RopeStyle,
)
from localinfer.models.metadata import ArchKeys, tensor_rows
from localinfer.models.rope import RopeScaling, rope_config

if TYPE_CHECKING:
    from localinfer.formats.gguf import GGUFFile


class Architecture:
    """A plain pre-norm decoder with grouped-query attention, RoPE and a gated feed-forward.

    The class attributes are the facts in which families differ most; a method is overridden where a fact hangs on
    the layer or the file.
    """

    rope_style: RopeStyle = "half"
    activation: Activation = "silu"
    norm: Literal["rms", "layer"] = "rms"
    ffn_norm = "ffn_norm"  # GGUF name of the norm before the feed-forward
    head_norm: Literal["before_rope", "after_rope", "after_rope_unweighted"] = "before_rope"
    parallel_residual = False
    window_period = 0  # the last layer of each so many sees everything, the others slide
    global_rope = True  # layers that see everything are rotated too
    scales_sliding_rope = True  # rope scaling stretches sliding layers too
    divide_logits = False  # logit_scale divides
    moe_gating: Gating = "softmax"
    moe_normalize = True

    def config(self, f: GGUFFile, n_ctx: int | None = None) -> ModelConfig:
        """`n_ctx` is the context that will be allocated: a few models choose their rope by it."""
        keys = ArchKeys(f, f.metadata.get_str("general.architecture"))
        n_layers = self.n_layers(keys)
        distinct: dict[LayerConfig, LayerConfig] = {}  # equal layers are one object: what is worked out once serves all
        found = (self.layer(keys, i, n_layers, n_ctx) for i in range(n_layers))
        layers = tuple(distinct.setdefault(layer, layer) for layer in found)
        return ModelConfig(
            arch=keys.arch,
            name=f.metadata.get_str("general.name", ""),
            n_layers=n_layers,
            n_embd=keys.count("embedding_length"),
            n_vocab=tensor_rows(f, "token_embd.weight", keys.integer("vocab_size", 0)),
            n_ctx_train=keys.count("context_length", at_most=1 << 40),
            norm=self.norm,
            norm_eps=keys.number(_EPS_KEY[self.norm]),
            layers=layers,
            rope_scaling=RopeScaling.kind_of(keys),
            ffn_norm=self.ffn_norm,
            notices=self.notices(keys, layers),
            **self.scales(keys, n_layers),
        )

    def n_layers(self, keys: ArchKeys) -> int:
        """Layers that run: blocks for multi-token prediction at the end of a file do not."""
        n_blocks = keys.count("block_count", at_most=4096)
        return max(1, n_blocks - keys.integer("nextn_predict_layers", 0))

    def notices(self, keys: ArchKeys, layers: tuple[LayerConfig, ...]) -> tuple[str, ...]:
        """What is left out of this model or done in another way than its makers did, one line each."""
        found = []
        window = keys.integer("attention.sliding_window", 0)
        slides = any(layer.attention and (layer.attention.window or layer.attention.chunk) for layer in layers)
        if 0 < window < keys.count("context_length", at_most=1 << 40) and not slides:
            found.append(
                f"its sliding window of {window:,} tokens is not applied (the file does not say in which layers, and "
                "llama.cpp does the same): beyond that many tokens answers may differ from the original model's"
            )
        if n_blocks := keys.integer("nextn_predict_layers", 0):
            found.append(f"its {n_blocks} block{'s' * (n_blocks > 1)} for guessing further tokens are not used")
        return tuple(found)

    def scales(self, keys: ArchKeys, n_layers: int) -> dict[str, Any]:
        """Further ModelConfig fields, as far as the file or the family sets them."""
        logit_scale = keys.number("logit_scale", 0.0) or 1.0
        return {
            "embedding_scale": keys.number("embedding_scale", 1.0),
            "residual_scale": keys.number("residual_scale", 1.0),
            "logit_scale": 1.0 / logit_scale if self.divide_logits else logit_scale,
            "logit_softcap": keys.number("final_logit_softcapping", 0.0),
            "parallel_residual": self.parallel_residual,
            "head_norm": self.head_norm,
        }

    def layer(self, keys: ArchKeys, i: int, n_layers: int, n_ctx: int | None) -> LayerConfig:
        attention = self.attention(keys, i, n_layers)
        return LayerConfig(
            kind=_kind(attention),
            mixers=("attention",),
            attention=attention,
            rope=self.rope(keys, i, attention, n_ctx),
            n_ff=keys.per_layer("feed_forward_length", n_layers, 0)[i],
            activation=self.activation,
            moe=self.moe(keys, i),
        )

    def attention(self, keys: ArchKeys, i: int, n_layers: int) -> AttentionConfig:
        n_heads = keys.per_layer("attention.head_count", n_layers, at_least=1)[i]
        n_kv_heads = keys.per_layer("attention.head_count_kv", n_layers, n_heads)[i]
        width = max(1, keys.count("embedding_length") // n_heads)
        d_k = keys.count("attention.key_length", width, at_most=1 << 16)
        d_v = keys.count("attention.value_length", width, at_most=1 << 16)
        if n_kv_heads < 1 or n_heads % n_kv_heads:
            raise keys.error("attention.head_count_kv", f"a divisor of the {n_heads} query heads", n_kv_heads)
        return AttentionConfig(
            n_heads, n_kv_heads, d_k, d_v,
            scale=self.attention_scale(keys, d_k),
            window=self.window(keys, i),
            softcap=keys.number("attn_logit_softcapping", 0.0),
        )  # fmt: skip

    def attention_scale(self, keys: ArchKeys, d_k: int) -> float:
        return keys.number("attention.scale", 0.0) or d_k**-0.5

    def window(self, keys: ArchKeys, i: int) -> int:
        """Positions that layer i sees, itself included; 0 for all."""
        window = keys.integer("attention.sliding_window", 0) if self.window_period else 0
        return window if window and self.slides(keys, i) else 0

    def slides(self, keys: ArchKeys, i: int) -> bool:
        """Does layer i slide? By the file's pattern (a period, or one flag a layer), else by the family's period."""
        pattern = keys.file.metadata.get(f"{keys.arch}.attention.sliding_window_pattern", self.window_period)
        if isinstance(pattern, list | array) and i < len(pattern):
            return bool(pattern[i])
        period = pattern if isinstance(pattern, int) else self.window_period
        return period <= 0 or i % period < period - 1

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig | None:
        if not self.global_rope and attention.window == 0:
            return None
        n_dims = keys.count("rope.dimension_count", attention.d_k, at_most=attention.d_k)
        if n_dims % 2:
            raise keys.error("rope.dimension_count", "an even number", n_dims)
        return rope_config(
            n_dims,
            self.rope_base(keys, attention),
            self.rope_style,
            self.rope_scaling(keys, attention),
            self.rope_factors(keys, n_ctx),
        )

    def rope_base(self, keys: ArchKeys, attention: AttentionConfig) -> float:
        """Radians per position fall from 1 to 1/base; sliding layers may have a base of their own."""
        base = keys.number("rope.freq_base", 10000.0)
        if attention.window:
            base = keys.number("rope.freq_base_swa", base)
        if not base > 1.0:
            raise keys.error("rope.freq_base", "a number above 1", base)
        return base

    def rope_scaling(self, keys: ArchKeys, attention: AttentionConfig) -> RopeScaling:
        stretched = self.scales_sliding_rope or not attention.window
        return RopeScaling.from_keys(keys) if stretched else RopeScaling()

    def rope_factors(self, keys: ArchKeys, n_ctx: int | None) -> tuple[float, ...] | None:
        """Divisors of the angles, where the file has them: llama3's, or longrope's for the context allocated."""
        if "rope_freqs.weight" in keys.file.tensors:
            return keys.floats_of("rope_freqs.weight")
        original = keys.integer("rope.scaling.original_context_length", 0) or keys.integer("context_length")
        long = (n_ctx or keys.integer("context_length")) > original
        return keys.floats_of("rope_factors_long.weight" if long else "rope_factors_short.weight")

    def moe(self, keys: ArchKeys, i: int) -> MoEConfig | None:
        """Experts where block i has a router."""
        tensors = keys.file.tensors
        if f"blk.{i}.ffn_gate_inp.weight" not in tensors:
            return None
        if f"blk.{i}.ffn_up_exps.weight" not in tensors:
            raise UnsupportedModel(
                f"{keys.file.path}: blk.{i}: expected all experts in one tensor (ffn_up_exps), found none",
                "use a newer conversion of this model",
            )
        n_experts = keys.count("expert_count", at_most=1 << 16)
        return MoEConfig(
            n_experts=n_experts,
            n_used=keys.count("expert_used_count", at_most=n_experts),
            n_ff=tensors[f"blk.{i}.ffn_up_exps.weight"].shape[-2],
            gating=self.gating(keys),
            normalize=keys.flag("expert_weights_norm", self.moe_normalize),
            scale=keys.number("expert_weights_scale", 0.0) or 1.0,
            n_groups=keys.integer("expert_group_count", 0) or 1,
            n_groups_used=keys.integer("expert_group_used_count", 0) or 1,
        )

    def gating(self, keys: ArchKeys) -> Gating:
        code = keys.integer("expert_gating_func", 0)
        if code not in _GATING:
            raise UnsupportedModel(f"{keys.file.path}: expert gating function {code} is not known (1 to 3 are)")
        return _GATING[code] or self.moe_gating


_EPS_KEY = {"rms": "attention.layer_norm_rms_epsilon", "layer": "attention.layer_norm_epsilon"}
_GATING: dict[int, Gating | None] = {0: None, 1: "softmax", 2: "sigmoid", 3: "softmax_after_topk"}


def _kind(attention: AttentionConfig) -> LayerKind:
    if attention.window:
        return "window"
    return "chunked" if attention.chunk else "full"
