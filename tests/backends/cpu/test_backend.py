"""The backend's contract: device info, zero copies, bounds, errors in one line, and the way without kernels."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import replace

import numpy as np
import pytest

from localinfer.backends.cpu import backend as module
from localinfer.backends.cpu import trace
from localinfer.backends.cpu.backend import CpuBackend, open_cpu
from localinfer.backends.cpu.kv import CpuKV
from localinfer.backends.cpu.structs import OP_NAMES
from localinfer.backends.cpu.tape import Tape
from localinfer.backends.cpu.weights import CpuWeight
from localinfer.errors import BackendError, FormatError, UnsupportedModel, UsageError
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import AttentionConfig, LayerConfig, ModelConfig
from localinfer.models.decoder import Decoder
from tests.backends.cpu.conftest import GOLDEN, tokens


def test_device_info_names_threads_and_instruction_set(backend) -> None:
    info = backend.device_info()
    assert info.backend == "cpu" and info.threads == 2 and info.memory_bytes > 1 << 28
    assert info.features[0] in ("scalar", "avx2", "avx512", "neon", "neondot") and info.notices == ()


def test_an_instruction_set_that_the_machine_lacks(monkeypatch) -> None:
    for foreign in ("avx2" if platform.machine() in ("aarch64", "arm64") else "neon", "avx512vbmi"):
        monkeypatch.setenv("LOCALINFER_CPU", foreign)
        with pytest.raises(UsageError, match=f"LOCALINFER_CPU={foreign}: scalar or .*expected"):
            open_cpu(1)


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_thread_count_out_of_range(threads: int) -> None:
    with pytest.raises(UsageError, match="--threads"):
        open_cpu(threads)


def test_nothing_is_copied(tiny) -> None:
    assert tiny("llama").model.copied_bytes == 0
    assert tiny("falcon-h1").model.copied_bytes < 8192  # taps of the convolutions, transposed


def test_scratch_is_bounded_and_there_after_the_first_cache(lib) -> None:
    backend = CpuBackend(lib, 1)
    with GGUFFile.open(GOLDEN / "llama.gguf") as file:
        config = ModelConfig.from_gguf(file)
        model = backend.load(file, config, lambda fraction, what: None)
        assert model.scratch_bytes == 0
        for chunk in (16, 32, 64, 128, 16):
            model.new_kv(KVSpec.from_config(config, 256, "f16", "f16", chunk))
        two_tapes = model.scratch_bytes
        model.new_kv(KVSpec.from_config(config, 256, "f16", "f16", 128))
        assert 0 < model.scratch_bytes == two_tapes
        model.close()
    backend.close()


def test_too_many_tokens_and_a_full_context(tiny) -> None:
    model, ids = tiny("llama"), tokens("llama")
    kv = model.new_kv(chunk=8, n_ctx=20)
    with pytest.raises(BackendError, match=r"1\.\.8 tokens"):
        model.model.forward(ids[:9], kv, 1)
    with pytest.raises(BackendError, match=r"0\.\.4 rows"):
        model.model.forward(ids[:4], kv, 5)
    model.model.forward(ids[:8], kv, 0)
    model.model.forward(ids[:8], kv, 0)
    with pytest.raises(BackendError, match="context full: 16"):
        model.model.forward(ids[:5], kv, 1)
    assert kv.length == 16


@pytest.mark.parametrize("bad", [-1, 320, 2**31 - 1])
def test_token_ids_beyond_the_vocabulary(tiny, bad: int) -> None:
    kv = tiny("llama").new_kv()
    with pytest.raises(BackendError, match="vocabulary"):
        tiny("llama").model.forward([1, bad], kv, 1)
    assert kv.length == 0


def altered(name: str, make) -> dict[str, CpuWeight]:
    file = GGUFFile.open(GOLDEN / "llama.gguf")
    weights = {n: CpuWeight(n, file.raw(i), i.type, i.shape) for n, i in file.tensors.items()}
    new = make(weights.pop(name))
    return weights if new is None else {**weights, name: new}


def load(backend: CpuBackend, weights: dict[str, CpuWeight]) -> None:
    with GGUFFile.open(GOLDEN / "llama.gguf") as file:
        Tape(backend.lib, Decoder(ModelConfig.from_gguf(file), weights), 1, 1).close()


def cut(w: CpuWeight) -> CpuWeight:
    shape = (*w.shape[:-2], w.shape[-2] // 2, w.shape[-1]) if len(w.shape) > 1 else (w.shape[0] // 2,)
    return CpuWeight(w.name, w.raw[: len(w.raw) // 2], w.type, shape)


@pytest.mark.parametrize("name", ["blk.0.ffn_down.weight", "blk.1.attn_output.weight"])
def test_missing_tensor_is_named(backend, name: str) -> None:
    with pytest.raises(FormatError, match=name):
        load(backend, altered(name, lambda w: None))


@pytest.mark.parametrize("name", ["blk.0.attn_q.weight", "blk.0.ffn_down.weight", "blk.1.attn_norm.weight"])
def test_misshapen_tensor_is_found_before_it_is_read(backend, name: str) -> None:
    with pytest.raises(FormatError, match=r"do not fit together|expected, found"):
        load(backend, altered(name, cut))


def test_type_without_a_kernel_is_named(backend) -> None:
    name = "blk.0.ffn_up.weight"
    with pytest.raises(UnsupportedModel, match=f"{name}.*I32"):
        load(backend, altered(name, lambda w: CpuWeight(w.name, w.raw, GGMLType.I32, w.shape)))


def test_without_kernels_numpy_computes_and_says_so(monkeypatch, tiny) -> None:
    def missing():
        raise BackendError("the CPU kernels are not built", "install a C compiler")

    monkeypatch.setattr(module, "open_library", missing)
    fallback = open_cpu()
    info = fallback.device_info()
    assert info.backend == "cpu" and "numpy" in info.notices[0] and "compiler" in info.notices[0]
    ids = tokens("llama")[:10]
    with GGUFFile.open(GOLDEN / "llama.gguf") as file:
        config = ModelConfig.from_gguf(file)
        model = fallback.load(file, config, lambda fraction, what: None)
        assert model.notices == info.notices
        kv = model.new_kv(KVSpec.from_config(config, 64, "f32", "f32", 16))
        assert np.abs(model.forward(ids, kv, 10) - tiny("llama").logits(ids, 10)).max() < 1e-4
        model.close()


def test_idle_pool_uses_no_processor(tiny) -> None:
    model, ids = tiny("llama"), tokens("llama")
    kv = model.new_kv()
    model.model.forward(ids[:20], kv, 1)
    time.sleep(0.02)  # workers spin for half a millisecond, then sleep
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05


def test_trace_counts_operations(backend, tiny) -> None:
    model, ids = tiny("llama"), tokens("llama")
    kv = model.new_kv()
    backend.lib.li_trace(1)
    model.model.forward(ids[:20], kv, 1)
    counted = trace.by_operation(backend.lib)
    backend.lib.li_trace(0)
    assert counted["attention"][1] == model.config.n_layers and counted["linear"][0] > 0
    assert set(counted) <= set(OP_NAMES)


@pytest.mark.model
def test_real_model_answers_alike_with_any_threads(lib) -> None:
    folder = os.environ.get("LOCALINFER_TEST_MODELS")
    path = f"{folder}/SmolLM2-135M-Instruct.Q4_1.gguf"
    if not folder or not os.path.exists(path):
        pytest.skip("LOCALINFER_TEST_MODELS names no folder with SmolLM2-135M-Instruct.Q4_1.gguf")
    results = []
    for threads in (1, 2):
        backend = CpuBackend(lib, threads)
        with GGUFFile.open(path) as file:
            config = ModelConfig.from_gguf(file)
            model = backend.load(file, config, lambda fraction, what: None)
            kv = model.new_kv(KVSpec.from_config(config, 256, "f16", "f16", 64))
            ids = list(range(100, 140))
            first = model.forward(ids, kv, 1)
            results.append(np.concatenate([first, *(model.forward([i], kv, 1) for i in range(5))]))
            model.close()
        backend.close()
    assert np.array_equal(*results)


def test_a_latent_cache_takes_what_its_spec_says(lib, backend) -> None:
    """The attention kernels cannot read values inside keys, so MLA's values are stored, and priced, once more."""
    attention = AttentionConfig(4, 1, 48, 32, 1.0, v_in_k=True)
    layer = LayerConfig("mla", ("mla",), attention, None, 0)
    config = replace(ModelConfig("x", "", 1, 64, 100, 512, "rms", 1e-5, ()), layers=(layer,))
    spec = KVSpec.from_config(config, 64, "f16", "f16", 16, backend.device_info().v_beside_k)
    assert CpuKV(lib, spec).n_bytes == spec.n_bytes == 64 * (48 + 32) * 2
