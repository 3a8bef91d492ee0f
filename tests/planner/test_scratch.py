"""Scratch against what is laid out for a whole model, and against what the cpu backend allocates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localinfer.formats.ggml_types import GGMLType
from localinfer.models.decoder import Decoder
from localinfer.planner.plan import _decoded
from localinfer.planner.platforms import RULES
from localinfer.planner.scratch import scratch_for, without_repeats
from tests.planner.sparse_headers import MODELS


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk", [1, 512])
def test_leaving_out_repeated_layers_changes_no_byte(sparse_models, name, chunk):
    facts = sparse_models.facts(name)
    config, tensors = without_repeats(facts.config, facts.tensors)
    assert config.n_layers < facts.config.n_layers or name.startswith("gemma")
    short, whole = (
        Decoder(c, t).record(chunk, 1).layout() for c, t in ((config, tensors), (facts.config, facts.tensors))
    )
    assert short == whole


def test_activations_by_hand(sparse_models):
    """Qwen3-8B, 512 tokens: the feed-forward holds x and its norm (4096 each), gate, up and their product (12288)."""
    scratch = scratch_for(sparse_models.facts("qwen3-8b-q4_k"), 512, 1, RULES["cpu"])
    tables = 512 * 128 * 4  # cos and sin
    assert scratch.activations == 512 * (4096 + 3 * 12288) * 4 + tables
    assert scratch.prepared == 512 * (12288 // 32) * 72


def test_experts_by_hand(sparse_models):
    """Qwen3-30B-A3B, 512 tokens, 8 of 128 experts of 768: outputs of 2048 for each pair of token and expert. mlx sorts
    the pairs, so it holds the outputs in the experts' order and in that of the tokens; 4096 > 3584 = 2 * 768 + 2048."""
    facts = sparse_models.facts("qwen3-30b-a3b-q4_k")
    assert scratch_for(facts, 512, 1, RULES["cpu"]).experts == 512 * 4 * (128 + 8 * 3584)
    assert scratch_for(facts, 512, 1, RULES["metal"]).experts == 512 * 4 * (128 + 8 * 4096)


def test_unfused_scores_grow_with_context(sparse_models):
    facts = sparse_models.facts("gemma-3-12b-q4_k")  # head size 256: scores are written out, at most three tiles
    metal = scratch_for(facts, 512, 1, RULES["metal"])
    assert metal.attention(4096) == 16 * 512 * 4096 * 2
    assert metal.attention(32768) == metal.attention(131072) == 3 * 64 * 2**20
    assert scratch_for(sparse_models.facts("qwen3-8b-q4_k"), 512, 1, RULES["metal"]).attention(32768) == 0


@pytest.mark.parametrize("ctx", [1, 256, 4096, 4097, 32768])
@pytest.mark.parametrize("name", ["qwen3-0.6b-q8_0", "gemma-3-12b-q4_k", "phi-3-mini-q4_k"])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_attention_scratch_is_close_to_the_kernels_own(sparse_models, name, ctx, threads):
    ctypes = pytest.importorskip("ctypes")
    from localinfer.backends.cpu import structs
    from localinfer.backends.cpu.lib import open_library
    from localinfer.errors import BackendError
    from localinfer.kv.spec import KVSpec

    try:
        lib = open_library()
    except BackendError as error:
        pytest.skip(error.message)
    facts = sparse_models.facts(name)
    spec = KVSpec.from_config(facts.config, ctx, "f16", "f16", 64)
    sizes = []
    for config, kv in zip(facts.config.layers, spec.layers, strict=True):
        a, slot = config.attention, structs.KVLayer()
        slot.k_type = slot.v_type = structs.KV_TYPE_IDS["f16"]
        slot.n_kv_heads, slot.d_k, slot.d_v, slot.window = kv.n_kv_heads, kv.d_k, kv.d_v, kv.window
        slot.page_tokens, slot.n_pages = 16, kv.n_pages
        attention = structs.Attention()
        attention.n_heads = a.n_heads
        sizes.append(lib.li_attention_scratch_bytes(ctypes.byref(attention), ctypes.byref(slot), 64, ctx, threads))
    planned = scratch_for(facts, 64, threads, RULES["cpu"]).attention(ctx)
    assert planned == pytest.approx(max(sizes), abs=threads * 2**16)  # a thread's part is the kernels' own business


def test_types_without_a_kernel_are_counted_as_decoded(sparse_models):
    """One of qwen3-0.6b's matrices as IQ2_XS: 2 bytes a value on a GPU, nothing on the cpu backend, which has all."""
    facts = sparse_models.facts("qwen3-0.6b-q8_0")
    name = "blk.0.ffn_up.weight"
    changed = replace(facts.tensors[name], type=GGMLType.IQ2_XS)
    facts = replace(facts, tensors={**facts.tensors, name: changed})
    values = changed.shape[0] * changed.shape[1]
    assert _decoded(facts, RULES["metal"]) == (2 * values, "no kernel here for IQ2_XS")
    assert _decoded(facts, RULES["cpu"])[0] == 0
