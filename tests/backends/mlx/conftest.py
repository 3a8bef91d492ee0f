"""Skips everything here where MLX is not installed; tiny models with llama.cpp's logits."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny"
collect_ignore_glob = [] if find_spec("mlx") else ["test_*.py"]


@cache
def tokens(name: str) -> list[int]:
    return json.loads((GOLDEN / "tokens.json").read_text())[name]


@cache
def golden_logits(name: str) -> np.ndarray:
    """(96, 320)."""
    return np.load(GOLDEN / f"{name}.npz")["logits"]
