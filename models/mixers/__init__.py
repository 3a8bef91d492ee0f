"""What lets a token see the tokens before it: one file a kind of mixer, each `(ops, h, place) -> (T, E)`.

A layer names its mixers (LayerConfig.mixers); their outputs add up.
"""

from __future__ import annotations

from localinfer.models.config import Mixer
from localinfer.models.mixers.attention import attention
from localinfer.models.mixers.delta import delta
from localinfer.models.mixers.mamba import mamba, mamba2
from localinfer.models.mixers.mla import mla
from localinfer.models.mixers.place import MixerFunction, Place
from localinfer.models.mixers.shortconv import shortconv

MIXERS: dict[Mixer, MixerFunction] = {
    "attention": attention,
    "delta": delta,
    "mamba": mamba,
    "mamba2": mamba2,
    "mla": mla,
    "shortconv": shortconv,
}

__all__ = ["MIXERS", "Place"]
