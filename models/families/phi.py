"""Phi 2 and 3."""

from __future__ import annotations

from localinfer.models.families.base import Architecture


class Phi2(Architecture):
    norm = "layer"
    activation = "gelu"
    parallel_residual = True


class Phi3(Architecture):
    """Fused projections. Its sliding window is ignored, as llama.cpp does: converted files do not carry the pattern."""
