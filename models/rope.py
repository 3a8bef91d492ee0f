"""Rotary embedding: every scaling scheme becomes one angle per pair and position, and one magnitude.

Sources: linear interpolation (arXiv 2306.15595), YaRN (arXiv 2309.00071) as llama.cpp evaluates it, Llama 3's
frequency factors (stored in the file as rope_freqs.weight), LongRoPE (arXiv 2402.13753; factors in the file).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from localinfer.errors import UnsupportedModel
from localinfer.models.config import RopeConfig, RopeStyle
from localinfer.models.metadata import ArchKeys
from localinfer.records import dataclass


@dataclass(frozen=True)
class RopeScaling:
    """As metadata gives it. `original_ctx` is the context before scaling (yarn's correction range hangs on it)."""

    kind: str = "none"  # none, linear, yarn, longrope
    factor: float = 1.0
    original_ctx: int = 0
    attention_factor: float = 1.0
    extrapolation: float = 1.0  # yarn: share of unscaled angles in the fast dimensions
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    @staticmethod
    def kind_of(keys: ArchKeys) -> str:
        """As the file names it; old files have only a linear factor, longrope files only their factor tensors."""
        default = "none"
        if "rope.scale_linear" in keys:
            default = "linear"
        elif "rope_factors_long.weight" in keys.file.tensors:
            default = "longrope"
        return keys.text("rope.scaling.type", default)

    @classmethod
    def from_keys(cls, keys: ArchKeys) -> RopeScaling:
        kind = cls.kind_of(keys)
        if kind not in ("none", "linear", "yarn", "longrope"):
            raise UnsupportedModel(f"{keys.file.path}: rope scaling {kind!r} is not known (linear, yarn, longrope are)")
        return cls(
            kind,
            keys.number("rope.scaling.factor", 0.0) or keys.number("rope.scale_linear", 0.0) or 1.0,
            keys.integer("rope.scaling.original_context_length", 0) or keys.integer("context_length"),
            keys.number("rope.scaling.attn_factor", 1.0),
            keys.number("rope.scaling.yarn_ext_factor", 1.0),
            keys.number("rope.scaling.yarn_beta_fast", 32.0),
            keys.number("rope.scaling.yarn_beta_slow", 1.0),
        )


def rope_config(
    n_dims: int,
    base: float,
    style: RopeStyle,
    scaling: RopeScaling | None = None,
    factors: Sequence[float] | None = None,
) -> RopeConfig:
    """Angles for n_dims rotated values; `factors` (n_dims/2) divide the unscaled angle (llama3, longrope)."""
    scaling = scaling or RopeScaling()
    angles = [base ** (-2.0 * i / n_dims) for i in range(n_dims // 2)]
    if factors is not None:
        angles = [a / f for a, f in zip(angles, factors, strict=False)]
    if scaling.kind == "yarn":
        return RopeConfig(n_dims, style, tuple(_yarn(angles, n_dims, base, scaling)), _yarn_magnitude(scaling))
    if scaling.kind == "linear":
        angles = [a / scaling.factor for a in angles]
    return RopeConfig(n_dims, style, tuple(angles), scaling.attention_factor)


def _yarn(angles: list[float], n_dims: int, base: float, s: RopeScaling) -> list[float]:
    """Fast dimensions keep their angle, slow ones are interpolated, a linear ramp lies between."""
    low = max(0.0, math.floor(_yarn_dim(s.beta_fast, n_dims, base, s.original_ctx)))
    high = min(n_dims - 1.0, math.ceil(_yarn_dim(s.beta_slow, n_dims, base, s.original_ctx)))
    mixed = []
    for i, angle in enumerate(angles):
        keep = (1.0 - min(1.0, max(0.0, (i - low) / max(0.001, high - low)))) * s.extrapolation
        mixed.append(angle / s.factor * (1.0 - keep) + angle * keep)
    return mixed


def _yarn_dim(n_rotations: float, n_dims: int, base: float, ctx: int) -> float:
    """The pair that turns n_rotations times over the original context."""
    return n_dims * math.log(ctx / (n_rotations * 2 * math.pi)) / (2 * math.log(base))


def _yarn_magnitude(s: RopeScaling) -> float:
    if s.extrapolation == 0.0:
        return s.attention_factor
    return s.attention_factor * (1.0 + 0.1 * math.log(s.factor))
