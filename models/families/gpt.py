"""Decoders of the GPT line: LayerNorm with biases, feed-forwards without a gate."""

from __future__ import annotations

from typing import Any

from localinfer.models.config import AttentionConfig, RopeConfig
from localinfer.models.families.base import Architecture
from localinfer.models.metadata import ArchKeys


class StarCoder2(Architecture):
    norm = "layer"
    activation = "gelu"


class GPT2(StarCoder2):
    """Learned positions instead of rotation."""

    def rope(self, keys: ArchKeys, i: int, attention: AttentionConfig, n_ctx: int | None) -> RopeConfig | None:
        return None


class GPTNeoX(StarCoder2):
    def scales(self, keys: ArchKeys, n_layers: int) -> dict[str, Any]:
        parallel = keys.flag("use_parallel_residual", True)
        return super().scales(keys, n_layers) | {"parallel_residual": parallel}


class Falcon(StarCoder2):
    parallel_residual = True


class Nemotron(Architecture):
    norm = "layer"
    activation = "relu2"


class StableLM(Architecture):
    """Without a norm before the feed-forward (12B), attention and feed-forward run side by side."""

    norm = "layer"

    def scales(self, keys: ArchKeys, n_layers: int) -> dict[str, Any]:
        parallel = "blk.0.ffn_norm.weight" not in keys.file.tensors
        return super().scales(keys, n_layers) | {"parallel_residual": parallel}
