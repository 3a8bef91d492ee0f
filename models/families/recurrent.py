"""Models with a fixed-size memory in some or all layers: Mamba, its hybrids, LFM2, Qwen3-Next and Qwen3.5."""

from __future__ import annotations

from localinfer.models.config import AttentionConfig, LayerConfig, Mixer, RopeConfig, StateConfig
from localinfer.models.families.base import Architecture
from localinfer.models.families.llama import Granite
from localinfer.models.metadata import ArchKeys
from localinfer.records import replace


def mamba2_state(keys: ArchKeys) -> StateConfig:
    inner, n_heads = keys.count("ssm.inner_size"), keys.count("ssm.time_step_rank")
    n_groups, d_state = keys.count("ssm.group_count", 1), keys.count("ssm.state_size", at_most=1 << 16)
    if inner % n_heads or n_heads % n_groups:
        raise keys.error("ssm.time_step_rank", f"a divisor of {inner} that {n_groups} groups divide", n_heads)
    return StateConfig(
        keys.count("ssm.conv_kernel", at_most=64), inner + 2 * n_groups * d_state, n_heads, inner // n_heads, d_state,
        n_groups,
    )  # fmt: skip


class Recurrent(Architecture):
    """A layer keeps state where `is_recurrent` says so, and attends elsewhere."""

    mixer: Mixer = "mamba2"

    def state(self, keys: ArchKeys) -> StateConfig:
        return mamba2_state(keys)

    def is_recurrent(self, keys: ArchKeys, i: int, n_layers: int) -> bool:
        return keys.per_layer("attention.head_count_kv", n_layers, 0)[i] == 0

    def layer(self, keys: ArchKeys, i: int, n_layers: int, n_ctx: int | None) -> LayerConfig:
        if not self.is_recurrent(keys, i, n_layers):
            return super().layer(keys, i, n_layers, n_ctx)
        n_ff = keys.per_layer("feed_forward_length", n_layers, 0)[i]
        return LayerConfig(
            "state", (self.mixer,), None, None, n_ff, self.activation, self.moe(keys, i), state=self.state(keys)
        )


class Mamba(Recurrent):
    mixer: Mixer = "mamba"

    def is_recurrent(self, keys: ArchKeys, i: int, n_layers: int) -> bool:
        return True

    def state(self, keys: ArchKeys) -> StateConfig:
        inner = keys.count("ssm.inner_size")
        return StateConfig(
            keys.count("ssm.conv_kernel", at_most=64), inner, inner, 1, keys.count("ssm.state_size", at_most=1 << 16)
        )


class Mamba2(Mamba):
    mixer = "mamba2"

    def state(self, keys: ArchKeys) -> StateConfig:
        return mamba2_state(keys)


class FalconH1(Architecture):
    """Attention and Mamba 2 side by side in every layer."""

    def layer(self, keys: ArchKeys, i: int, n_layers: int, n_ctx: int | None) -> LayerConfig:
        plain = super().layer(keys, i, n_layers, n_ctx)
        return replace(plain, mixers=("attention", "mamba2"), state=mamba2_state(keys))


class NemotronH(Recurrent):
    """Each layer is one thing: Mamba 2, attention without rotation, or a feed-forward."""

    activation = "relu2"
    moe_gating = "sigmoid"

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig | None:
        return None

    def layer(self, keys: ArchKeys, i: int, n_layers: int, n_ctx: int | None) -> LayerConfig:
        n_ff = keys.per_layer("feed_forward_length", n_layers, 0)[i]
        moe = self.moe(keys, i)
        if n_ff or moe:
            return LayerConfig("none", (), None, None, n_ff, self.activation, moe)
        return super().layer(keys, i, n_layers, n_ctx)


class GraniteHybrid(Recurrent, Granite):
    pass


class LFM2(Recurrent):
    mixer = "shortconv"

    def state(self, keys: ArchKeys) -> StateConfig:
        return StateConfig(keys.count("shortconv.l_cache", at_least=2, at_most=64), keys.count("embedding_length"))


class Qwen3Next(Recurrent):
    """Three gated delta layers, then one that attends, with gated outputs."""

    mixer = "delta"
    ffn_norm = "post_attention_norm"
    tiled_groups = False

    def is_recurrent(self, keys: ArchKeys, i: int, n_layers: int) -> bool:
        return (i + 1) % keys.count("full_attention_interval", 4) != 0

    def state(self, keys: ArchKeys) -> StateConfig:
        return replace(mamba2_state(keys), tiled_groups=self.tiled_groups)


class Qwen35(Qwen3Next):
    """Value heads are stored in another order than in Qwen3-Next."""

    tiled_groups = True
