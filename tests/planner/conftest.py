"""Sparse headers of real models, written once a session and read once each."""

from __future__ import annotations

from pathlib import Path

import pytest

from localinfer.formats.gguf import GGUFFile
from localinfer.planner.facts import ModelFacts
from localinfer.planner.weights import block_split
from tests.planner.sparse_headers import write_header


class SparseModels:
    """Model headers by name: paths, facts, and where a file's bytes are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._facts: dict[str, ModelFacts] = {}

    def path(self, name: str) -> Path:
        path = self._folder / f"{name}.gguf"
        return path if path.exists() else write_header(self._folder, name)

    def facts(self, name: str) -> ModelFacts:
        if name not in self._facts:
            with GGUFFile.open(self.path(name)) as f:
                self._facts[name] = ModelFacts.from_gguf(f)
        return self._facts[name]

    def split_of(self, name: str) -> dict[str, int]:
        facts = self.facts(name)
        split = block_split(facts.tensors.values())
        return {
            "file_bytes": facts.file_bytes,
            "payload_bytes": split.payload_bytes,
            "codes_and_floats": split.codes_and_floats,
            "scales": split.scales,
            "header_and_padding": facts.file_bytes - split.payload_bytes,
        }


@pytest.fixture(scope="session")
def sparse_models(tmp_path_factory: pytest.TempPathFactory) -> SparseModels:
    return SparseModels(tmp_path_factory.mktemp("headers"))
