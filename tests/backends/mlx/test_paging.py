"""Paged weights on MLX: the same bits, a layer at a time; on mlx-cpu, and through the GPU path on the host."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.mlx.backend import MLXBackend
from localinfer.backends.mlx.device import MLXDevice
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig
from localinfer.planner.facts import ModelFacts
from localinfer.planner.plan import paging_for
from tests.backends.mlx.conftest import GOLDEN, tokens
from tests.metal_kernels.launcher import HostLauncher


def logits(backend: MLXBackend, file: GGUFFile, ids: list[int], share: float):
    config = ModelConfig.from_gguf(file)
    facts = ModelFacts.from_file(file)
    paging = paging_for(facts, int(facts.tensor_bytes * share))
    model = backend.load(file, config, lambda fraction, what: None, paging)
    kv = model.new_kv(KVSpec.from_config(config, 64, "f32", "f32", 16))
    out = [model.forward(ids[:12], kv, 12), model.forward(ids[12:13], kv, 1), model.forward(ids[13:14], kv, 1)]
    return np.concatenate(out), model, paging


@pytest.mark.parametrize("name", ["llama", "gemma3", "falcon-h1", "llama256-moe-Q4_K_M"])
def test_the_same_bits_and_never_more_than_a_layer(name: str) -> None:
    backend, ids = MLXBackend(), tokens(name)
    with GGUFFile.open(GOLDEN / f"{name}.gguf") as file:
        expected, plain, _ = logits(backend, file, ids, 2.0)
        assert plain.paging is None
        found, paged, paging = logits(backend, file, ids, 0.3)
        assert np.array_equal(found, expected)
        layers = {}
        for tensor in paging.streamed | paging.cached:
            layer = ".".join(tensor.split(".")[:2])
            layers[layer] = layers.get(layer, 0) + file.tensors[tensor].n_bytes
        assert len(layers) > 1 and paged._windows.most_bytes <= max(layers.values())
        assert paged.paging.read_bytes >= 2 * sum(layers.values())
        for model in (plain, paged):
            model.close()


def test_windows_through_the_gpu_path() -> None:
    backend = MLXBackend(HostLauncher(), MLXDevice("metal", "host", 1 << 30, mx.float32))
    ids = tokens("llama256-moe-Q4_K_M")
    with GGUFFile.open(GOLDEN / "llama256-moe-Q4_K_M.gguf") as file:
        expected, plain, _ = logits(backend, file, ids, 2.0)
        found, paged, _ = logits(backend, file, ids, 0.3)
        assert np.array_equal(found, expected) and paged.paging.read_bytes > 0
        for model in (plain, paged):
            model.close()
