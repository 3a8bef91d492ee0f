"""The kernels as installed, and tiny models with golden logits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from localinfer.backends.cpu.backend import CpuBackend, CpuModel
from localinfer.backends.cpu.lib import Library, library_path, open_library
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny"


@pytest.fixture(scope="session")
def lib() -> Library:
    if library_path() is None:
        pytest.skip("the C kernels are not built")
    return open_library()


@pytest.fixture(scope="session")
def backend(lib: Library) -> Iterator[CpuBackend]:
    opened = CpuBackend(lib, threads=2)
    yield opened
    opened.close()


@cache
def tokens(name: str) -> list[int]:
    return json.loads((GOLDEN / "tokens.json").read_text())[name]


@cache
def golden_logits(name: str) -> np.ndarray:
    """(96, 320)."""
    return np.load(GOLDEN / f"{name}.npz")["logits"]


@dataclass
class Tiny:
    """A loaded tiny model."""

    name: str
    config: ModelConfig
    model: CpuModel

    def new_kv(self, chunk: int = 128, kv_type: str = "f32", n_ctx: int = 256):
        return self.model.new_kv(KVSpec.from_config(self.config, n_ctx, kv_type, kv_type, chunk))

    def logits(self, ids: list[int], step: int, chunk: int = 128, kv=None) -> np.ndarray:
        """Logits after each id, taken `step` tokens at a time."""
        kv = self.new_kv(chunk) if kv is None else kv
        parts = [ids[i : i + step] for i in range(0, len(ids), step)]
        return np.concatenate([self.model.forward(part, kv, len(part)) for part in parts])


@pytest.fixture(scope="session")
def tiny(backend: CpuBackend) -> Iterator[Callable[[str], Tiny]]:
    files: list[GGUFFile] = []

    @cache
    def load(name: str) -> Tiny:
        files.append(GGUFFile.open(GOLDEN / f"{name}.gguf"))
        config = ModelConfig.from_gguf(files[-1])
        return Tiny(name, config, backend.load(files[-1], config, lambda fraction, what: None))

    yield load
    for file in files:
        file.close()
