"""The reader on real files, where LOCALINFER_TEST_MODELS names a folder that has some."""

from __future__ import annotations

import os
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from localinfer.formats.dequant import can_dequantize, dequantize_rows
from localinfer.formats.gguf import GGUFFile
from tests.formats.test_gguf import listing, reader_listing

FOLDER = os.environ.get("LOCALINFER_TEST_MODELS", "")
MODELS = sorted(Path(FOLDER).glob("*.gguf")) if FOLDER else []

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not MODELS, reason="LOCALINFER_TEST_MODELS names no folder with .gguf files"),
]


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_opens_fast_and_fills_its_file(path: Path):
    start = time.process_time()
    with GGUFFile.open(path) as f:
        infos = list(f.tensors.values())
        assert time.process_time() - start < 0.15
        if not infos:
            pytest.skip("a vocabulary without tensors")
        ends = [info.offset + info.n_bytes for info in infos]
        assert [info.offset for info in infos] == [
            infos[0].offset, *(-(-end // f.alignment) * f.alignment for end in ends[:-1])
        ]  # fmt: skip
        assert -(-ends[-1] // f.alignment) * f.alignment == f.file_bytes
        start = time.process_time()
        tokens = f.get_array("tokenizer.ggml.tokens", of=str)
        assert time.process_time() - start < 0.5
        assert len(tokens) == len(f.get_array("tokenizer.ggml.token_type", of=int))


@pytest.mark.parametrize("path", [p for p in MODELS if p.stat().st_size < 2**20], ids=lambda p: p.stem)
def test_small_files_are_listed_as_the_gguf_package_lists_them(path: Path):
    """Small only: the package takes 25 s for a large vocabulary."""
    reader = gguf.GGUFReader(path)
    with GGUFFile.open(path) as f:
        assert listing(f) == reader_listing(reader)
        assert list(f.metadata) == [key for key in reader.fields if not key.startswith("GGUF.")]
        for tensor in reader.tensors:
            assert bytes(f.raw(f.tensors[tensor.name])) == tensor.data.tobytes()


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_first_and_last_rows_of_every_tensor_are_plausible_weights(path: Path):
    """A wrong offset or layout gives infinities, or matrices unlike a model's. Norm weights may be large."""
    with GGUFFile.open(path) as f:
        for info in f.tensors.values():
            assert can_dequantize(info.type)
            values = dequantize_rows(f.raw(info), info.type, info.shape[-1], [0, -1])
            assert np.isfinite(values).all(), info.name
            assert len(info.shape) == 1 or np.abs(values).max() < 100, info.name
