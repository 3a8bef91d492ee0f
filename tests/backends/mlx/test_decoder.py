"""Whole models on mlx-cpu: against llama.cpp's logits, against the cpu backend, and against themselves."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.cpu.backend import CpuBackend
from localinfer.backends.cpu.lib import library_path, open_library
from localinfer.backends.mlx.backend import MLXBackend
from localinfer.backends.mlx.device import MLXDevice
from localinfer.backends.reference.backend import ReferenceBackend
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig
from tests.backends.mlx.conftest import GOLDEN, golden_logits, tokens
from tests.fakes.decoded_file import opened_twice
from tests.models.tiny import TinyModel, golden_models, has_quantized_tensors, shared_models

CPU = MLXDevice("cpu", "mlx-cpu", 1 << 30, mx.float32)
QUANTIZED = ["llama256-moe-Q4_K_M"]  # of blocks; all others in float32 or float16
MODELS = ["llama", "gemma3", "falcon-h1", *QUANTIZED]


@cache
def opened(name: str) -> tuple[GGUFFile, ModelConfig]:
    file = GGUFFile.open(GOLDEN / f"{name}.gguf")
    return file, ModelConfig.from_gguf(file)


def logits(backend, name: str, step: int, kv_type: str = "f32", chunk: int = 96) -> np.ndarray:
    file, config = opened(name)
    model = backend.load(file, config, lambda fraction, what: None)
    kv = model.new_kv(KVSpec.from_config(config, 128, kv_type, kv_type, chunk))
    assert kv.n_bytes >= kv.spec.n_bytes or backend.device_info().backend == "reference"
    ids = tokens(name)
    out = [model.forward(ids[i : i + step], kv, len(ids[i : i + step])) for i in range(0, len(ids), step)]
    return np.concatenate(out)


@pytest.mark.parametrize("name", MODELS)
def test_logits_match_llamacpp(name: str) -> None:
    found = logits(MLXBackend(device=CPU), name, 96)
    assert np.abs(found - golden_logits(name)).max() < 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_logits_match_the_cpu_backend(name: str) -> None:
    if library_path() is None:
        pytest.skip("the C kernels are not built")
    expected = logits(CpuBackend(open_library(), 1), name, 96)
    difference = np.abs(logits(MLXBackend(device=CPU), name, 96) - expected).max()
    assert difference < (1e-3 * np.abs(expected).max() if name in QUANTIZED else 1e-3)


@pytest.mark.parametrize("name", QUANTIZED)
def test_the_difference_is_the_cpu_backends_rounding(name: str) -> None:
    """It rounds what it multiplies with blocks to 16 bits; mlx does not, and agrees with the float32 reference. No
    router's choice flips: a dense model differs as much."""
    found = logits(MLXBackend(device=CPU), name, 96)
    assert np.abs(found - logits(ReferenceBackend(), name, 96)).max() < 1e-4


@pytest.mark.parametrize(("name", "step"), [("gemma3", 7), ("gemma3", 1), ("falcon-h1", 13)])
def test_chunks_and_rings_change_nothing_that_counts(name: str, step: int) -> None:
    """With a chunk of 13 gemma3's windows are rings that roll over several times."""
    found = logits(MLXBackend(device=CPU), name, step, chunk=13)
    assert np.abs(found - logits(MLXBackend(device=CPU), name, 96)).max() < 1e-4


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
def test_smaller_kv_types_are_the_references(kv_type: str) -> None:
    """A value may round the other way where float32 sums differ in their last bit: hence not to the bit."""
    found = logits(MLXBackend(device=CPU), "gemma3", 24, kv_type)
    expected = logits(ReferenceBackend(), "gemma3", 24, kv_type)
    assert np.abs(found - expected).max() < {"f16": 2e-3, "q8_0": 2e-2, "q4_0": 0.2}[kv_type]
    assert np.median(np.abs(found - expected)) < 1e-3


def test_copies_are_counted_and_said() -> None:
    file, config = opened("llama")
    model = MLXBackend(device=CPU).load(file, config, lambda fraction, what: None)
    assert model.copied_bytes == sum(4 * int(np.prod(i.shape)) for i in file.tensors.values())
    assert any("full copy" in notice for notice in model.notices)


# -- files of blocks against the cpu backend's float kernels ----------------------------------------------------------
# The cpu backend rounds what it multiplies with blocks (cpu_kernels/linear.h); what it multiplies with float32 it does
# not. So the same weights, decoded, are what the two can be compared on: one decoder, two sets of kernels.


def quantized() -> dict[str, TinyModel]:
    """Tiny models of blocks: those of the repository, and more where LOCALINFER_SHARED has them."""
    return {name: tiny for name, tiny in {**golden_models(), **shared_models()}.items() if has_quantized_tensors(tiny)}


@pytest.mark.parametrize("name", quantized())
def test_blocks_on_mlx_are_the_cpu_backends_float_kernels_on_decoded_weights(name: str) -> None:
    tiny = quantized()[name]
    on_mlx, on_cpu, _ = on_both(tiny.path, [list(tiny.tokens)], 512)
    assert np.abs(on_mlx - on_cpu).max() < 1e-3


@pytest.mark.model
def test_first_tokens_of_a_real_model() -> None:
    """Within 1e-3 of the cpu backend's float kernels. Its fast kernels keep 12 bits of what they multiply with Q4_0 and
    Q4_1, 15 with all other blocks: off by 1 % of the largest logit at most."""
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    path = Path(os.environ.get("LOCALINFER_TEST_MODELS", ".")) / name
    if not path.exists():
        pytest.skip(f"needs {name} in LOCALINFER_TEST_MODELS")
    on_mlx, on_cpu, on_cpu_rounded = on_both(path, [[504, 2017, 314, 253], [284]], 32)
    assert np.abs(on_mlx - on_cpu).max() < 1e-3
    assert np.abs(on_mlx - on_cpu_rounded).max() < 1e-2 * np.abs(on_mlx).max()
    assert np.array_equal(on_mlx.argmax(axis=1), on_cpu_rounded.argmax(axis=1))


def on_both(path: Path, parts: list[list[int]], n_ctx: int) -> list[np.ndarray]:
    """Logits from mlx, from the cpu backend on decoded weights, and on the blocks."""
    if library_path() is None:
        pytest.skip("the C kernels are not built")
    with opened_twice(path, n_ctx) as (file, decoded, config):
        mlx, cpu = MLXBackend(device=CPU), CpuBackend(open_library(), 2)
        return [in_parts(backend, f, config, parts) for backend, f in ((mlx, file), (cpu, decoded), (cpu, file))]


def in_parts(backend: Any, file: Any, config: ModelConfig, parts: list[list[int]]) -> np.ndarray:
    model = backend.load(file, config, lambda fraction, what: None)
    n = sum(len(part) for part in parts)
    kv = model.new_kv(KVSpec.from_config(config, n, "f32", "f32", max(len(part) for part in parts)))
    logits = np.concatenate([model.forward(part, kv, len(part)) for part in parts])
    model.close()
    return logits
