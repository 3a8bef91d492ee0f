"""Whole models against llama.cpp's logits, and against themselves: any chunking, any thread count, after truncation."""

from __future__ import annotations

import numpy as np
import pytest

from localinfer.backends.cpu.backend import CpuBackend
from localinfer.formats.gguf import GGUFFile
from localinfer.models.config import ModelConfig
from tests.backends.cpu.conftest import GOLDEN, Tiny, golden_logits, tokens

F32_MODELS = ["llama", "gemma3", "falcon-h1"]
ALL_MODELS = [*F32_MODELS, "llama256-moe-Q4_K_M"]


def mean_kl(golden: np.ndarray, found: np.ndarray) -> float:
    """Mean KL divergence of found from golden over rows of logits, in float64."""
    p, q = (_log_softmax(x.astype(np.float64)) for x in (golden, found))
    return float(np.mean(np.sum(np.exp(p) * (p - q), axis=-1)))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("name", F32_MODELS)
def test_float_model_matches_golden_logits(tiny, name: str) -> None:
    logits = tiny(name).logits(tokens(name), step=96)
    assert np.abs(logits - golden_logits(name)).max() < 1e-3


def test_quantized_experts_match_golden_distribution(tiny) -> None:
    name = "llama256-moe-Q4_K_M"
    logits = tiny(name).logits(tokens(name), step=96)
    assert mean_kl(golden_logits(name), logits) < 1e-4
    assert np.abs(logits - golden_logits(name)).max() < 0.02


@pytest.mark.parametrize("name", ALL_MODELS)
@pytest.mark.parametrize("step", [1, 2, 7, 40])
def test_chunks_change_no_bit(tiny, name: str, step: int) -> None:
    ids = tokens(name)
    assert np.array_equal(tiny(name).logits(ids, step), tiny(name).logits(ids, 96))


@pytest.mark.parametrize("name", ALL_MODELS)
def test_chunk_size_of_the_cache_changes_no_bit(tiny, name: str) -> None:
    """A smaller chunk is another tape and, for windows, a shorter ring that rolls over several times."""
    ids = tokens(name)
    assert np.array_equal(tiny(name).logits(ids, 7, chunk=7), tiny(name).logits(ids, 96))


@pytest.mark.parametrize("name", ALL_MODELS)
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit(lib, tiny, name: str, threads: int) -> None:
    ids, other = tokens(name), CpuBackend(lib, threads)
    with GGUFFile.open(GOLDEN / f"{name}.gguf") as file:
        config = ModelConfig.from_gguf(file)
        model = Tiny(name, config, other.load(file, config, lambda fraction, what: None))
        for step in (1, 30):
            assert np.array_equal(model.logits(ids, step), tiny(name).logits(ids, 96))
        model.model.close()
    other.close()


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_truncated_cache_continues_as_if_never_longer(tiny, name: str) -> None:
    ids, model = tokens(name), tiny(name)
    kv = model.new_kv(chunk=32)
    model.logits(ids[:64], 32, kv=kv)
    assert kv.truncate(50) == 50
    again = model.logits(ids[50:], 32, kv=kv)
    assert np.array_equal(again, model.logits(ids, 96)[50:])


def test_ring_that_rolled_over_is_prefilled_again(tiny) -> None:
    ids, model = tokens("gemma3"), tiny("gemma3")
    kv = model.new_kv(chunk=7)
    model.logits(ids, 7, kv=kv)
    assert kv.truncate(20) == 0 and kv.length == 0
    assert np.array_equal(model.logits(ids, 7, kv=kv), model.logits(ids, 96))


def test_recurrent_model_starts_over_when_cut(tiny) -> None:
    ids, model = tokens("falcon-h1"), tiny("falcon-h1")
    kv = model.new_kv()
    model.logits(ids[:50], 50, kv=kv)
    assert kv.truncate(50) == 50  # nothing to forget
    assert kv.truncate(49) == 0
    assert np.array_equal(model.logits(ids, 20, kv=kv), model.logits(ids, 96))


@pytest.mark.parametrize("name", ALL_MODELS)
def test_only_the_last_rows_are_returned(tiny, name: str) -> None:
    ids, model = tokens(name), tiny(name)
    expected = model.logits(ids, 96)
    kv = model.new_kv()
    assert model.model.forward(ids[:40], kv, 0).shape == (0, 320)
    assert np.array_equal(model.model.forward(ids[40:90], kv, 3), expected[87:90])
    assert np.array_equal(model.model.forward(ids[90:91], kv, 1), expected[90:91])


def test_two_conversations_do_not_disturb_each_other(tiny) -> None:
    ids, model = tokens("llama"), tiny("llama")
    expected = model.logits(ids, 96)
    one, other = model.new_kv(), model.new_kv(chunk=16)
    model.model.forward(ids[:30], one, 0)
    model.model.forward(ids[10:20], other, 0)
    assert np.array_equal(model.model.forward(ids[30:60], one, 30), expected[30:60])


@pytest.mark.parametrize("kv_type,limit", [("f16", 1e-5), ("q8_0", 1e-3), ("q4_0", 5e-2)])
def test_smaller_kv_types_stay_close(tiny, kv_type: str, limit: float) -> None:
    ids, model = tokens("gemma3"), tiny("gemma3")
    kv = model.new_kv(kv_type=kv_type)
    found = model.logits(ids, 24, kv=kv)
    assert 0 < mean_kl(golden_logits("gemma3"), found) < limit


@pytest.mark.parametrize("name", ALL_MODELS)
def test_instruction_sets_change_no_bit(lib, tiny, name: str) -> None:
    """Plain C, as on a processor without AVX2 or NEON."""
    ids, model = tokens(name), tiny(name)
    fast = model.logits(ids, 30)
    assert lib.li_cpu_select(b"scalar") == 0
    try:
        assert np.array_equal(model.logits(ids, 30), fast)
        assert np.array_equal(model.logits(ids[:20], 1), fast[:20])
    finally:
        lib.li_cpu_select(b"")
