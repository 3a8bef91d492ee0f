"""Skips everything here where MLX is not installed; tiny models with llama.cpp's logits."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny"
collect_ignore_glob = [] if find_spec("mlx") else ["test_*.py"]


@cache
def tokens(name: str) -> list[int]:
    return json.loads((GOLDEN / "tokens.json").read_text())[name]


@cache
def golden_logits(name: str) -> np.ndarray:
    """(96, 320)."""
    return np.load(GOLDEN / f"{name}.npz")["logits"]


@pytest.fixture(autouse=True)
def on_mlx_cpu():
    """MLX's own operations on the CPU, also where there is a GPU: that is what the tolerances here are for."""
    import mlx.core as mx

    before = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(before)
