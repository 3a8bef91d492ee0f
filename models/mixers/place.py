"""Where a mixer works: the model, the layer, its weights, and the tokens' place in the conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localinfer.models.block import Block
from localinfer.models.config import LayerConfig, ModelConfig
from localinfer.models.ops import Array, Ops
from localinfer.records import dataclass


@dataclass(frozen=True)
class Place:
    model: ModelConfig
    layer: LayerConfig
    block: Block
    start: Any  # position of the first token; symbolic while recording
    kv: Any

    @property
    def index(self) -> int:
        return self.block.index


MixerFunction = Callable[[Ops, Array, Place], Array]
