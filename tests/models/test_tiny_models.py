"""Logits of whole models against llama.cpp's, with the tokens forced: whole, in chunks of 7, token by token.

Four models are in the repository; LOCALINFER_SHARED names a folder that may hold one for every architecture and
every block type.
"""

from __future__ import annotations

import numpy as np
import pytest

from localinfer.backends.cpu.backend import open_cpu
from localinfer.backends.reference.backend import ReferenceBackend
from localinfer.formats.gguf import GGUFFile
from localinfer.models.config import ModelConfig
from localinfer.models.decoder import check_tensors
from localinfer.models.families import ARCHITECTURES
from tests.models.tiny import (
    N_CTX,
    TOLERANCE,
    errors_by_chunk,
    golden_models,
    has_quantized_tensors,
    logits_in_chunks,
    roll_back,
    shared_folder,
    shared_models,
    sparse_models,
)
from tests.models.tiny_report import open_backend, report

needs_shared = pytest.mark.skipif(
    shared_folder() is None, reason="LOCALINFER_SHARED names no folder with tiny/: only the models in tests/golden"
)


@pytest.mark.parametrize("name", golden_models())
def test_reference_matches_llama_cpp(name: str) -> None:
    errors = errors_by_chunk(ReferenceBackend(), golden_models()[name])
    assert max(errors.values()) < TOLERANCE, errors


def test_mlx_matches_llama_cpp() -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from localinfer.backends.mlx.backend import MLXBackend

    for name in ("llama", "gemma3", "falcon-h1"):
        errors = errors_by_chunk(MLXBackend(), golden_models()[name], (96, 7))
        assert max(errors.values()) < TOLERANCE, (name, errors)


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize("name", shared_models())
def test_every_tiny_model_on_the_reference(name: str) -> None:
    errors = errors_by_chunk(ReferenceBackend(), shared_models()[name])
    assert max(errors.values()) < TOLERANCE, errors


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize("name", shared_models())
def test_every_tiny_model_on_the_cpu_backend(name: str) -> None:
    tiny = shared_models()[name]
    found = report(open_cpu(2), tiny)
    assert found["passed"], found
    logits = [logits_in_chunks(open_cpu(2), tiny, chunk) for chunk in (96, 7, 1)]
    assert all(np.array_equal(logits[0], other) for other in logits[1:]), "bits must not depend on the chunk"


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize("name", shared_models())
def test_every_tiny_model_on_mlx(name: str) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    found = report(open_backend("mlx"), shared_models()[name])
    assert found["passed"], found


@pytest.mark.parametrize("backend", ["cpu", "mlx"])
@pytest.mark.parametrize("name", golden_models())
def test_coming_back_from_other_tokens(name: str, backend: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
    tiny = golden_models()[name]
    found = roll_back(open_backend(backend), tiny)
    assert found.kept_of_turn == 72, "the prompt was marked there"
    assert found.kept_of_draft == (0 if (name, backend) == ("falcon-h1", "cpu") else 64)
    rounded = backend == "cpu" and has_quantized_tensors(tiny)
    assert found.back_error < (5e-3 if rounded else TOLERANCE)


@pytest.mark.parametrize("backend", ["reference", "cpu", "mlx"])
@pytest.mark.parametrize("name", sparse_models())
def test_families_that_only_make_py_has(name: str, backend: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
    opened = ReferenceBackend() if backend == "reference" else open_backend(backend)
    tiny = sparse_models()[name]
    for chunk in (96, 7):
        assert np.abs(logits_in_chunks(opened, tiny, chunk)[7::8] - tiny.logits).max() < TOLERANCE


@pytest.mark.parametrize("name", {**golden_models(), **sparse_models(), **shared_models()})
def test_every_tensor_of_a_file_is_used(name: str) -> None:
    tiny = {**golden_models(), **sparse_models(), **shared_models()}[name]
    with GGUFFile.open(tiny.path) as f:
        check_tensors(ModelConfig.from_gguf(f, N_CTX), f.tensors)


@needs_shared
def test_every_architecture_has_a_tiny_model() -> None:
    tested = set(sparse_models())
    for tiny in shared_models().values():
        with GGUFFile.open(tiny.path) as f:
            tested.add(f.metadata.get_str("general.architecture"))
    assert set(ARCHITECTURES) - tested <= {"nemotron_h_moe"}  # its layers are nemotron_h's with granite's experts
