"""Fused tapes compute the bits of unfused ones, with fewer instructions; only needed rows are computed."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from localinfer.backends.cpu.backend import CpuBackend
from localinfer.backends.cpu.fuse import fuse, needed_rows
from localinfer.backends.cpu.nodes import Attention, Linear, NormNode
from localinfer.backends.cpu.tape import Tape
from localinfer.backends.cpu.translate import Translator
from tests.backends.cpu.conftest import Tiny, tokens

MODELS = ["llama", "gemma3", "falcon-h1", "llama256-moe-Q4_K_M"]


def run(backend: CpuBackend, model: Tiny, tape: Tape, ids: list[int], step: int) -> np.ndarray:
    kv = model.new_kv(chunk=tape.max_tokens)
    sizes = [
        backend.lib.li_attention_scratch_bytes(a, kv.layers[i], tape.max_tokens, 256, backend.threads)
        for i, a in tape.attention
    ]
    scratch = mmap.mmap(-1, max(sizes, default=1))
    address = ctypes.addressof(ctypes.c_char.from_buffer(scratch))
    rows = []
    for i in range(0, len(ids), step):
        part = np.array(ids[i : i + step], np.int32)
        rows.append(tape.run(backend.pool, part, len(part), kv, address))
        kv.extend(len(part))
    return np.concatenate(rows)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("step", [1, 30])
def test_fused_and_unfused_agree_to_the_bit(backend, tiny, name: str, step: int) -> None:
    model = tiny(name)
    fused, plain = (Tape(backend.lib, model.model.decoder, 96, backend.threads, fused=f) for f in (True, False))
    ids = tokens(name)
    assert np.array_equal(run(backend, model, fused, ids, step), run(backend, model, plain, ids, step))


def nodes_of(backend: CpuBackend, model: Tiny, fused: bool) -> list:
    program = model.model.decoder.record(17, 16)
    nodes = Translator(program, backend.lib.li_type_supported).nodes()
    if fused:
        nodes = fuse(nodes, program.result)
        needed_rows(nodes, program.n_tokens)
    return nodes


def test_llama_layer_is_five_instructions(backend, tiny) -> None:
    """q k v; attention with rope; output and residual; gate, up, glu; down and residual: five a layer."""
    model = tiny("llama")
    nodes = nodes_of(backend, model, True)
    per_layer = [Linear, Attention, Linear, Linear, Linear]
    kinds = [type(node) for node in nodes[2:-1]]  # after the rope table and the embedding, before the logits
    assert kinds == per_layer * model.config.n_layers
    assert len(nodes_of(backend, model, False)) > 2.5 * len(nodes)


def test_rows_without_logits_stop_at_the_last_attention(backend, tiny) -> None:
    nodes = nodes_of(backend, tiny("llama"), True)
    last_attention = max(i for i, node in enumerate(nodes) if isinstance(node, Attention))
    assert [node.last for node in nodes] == [i > last_attention for i in range(len(nodes))]


def test_norms_before_matrices_are_no_instructions(backend, tiny) -> None:
    """Gemma's norms after its blocks stay; those before matrices, and of queries and keys, are part of them."""
    nodes = nodes_of(backend, tiny("gemma3"), True)
    n_layers = tiny("gemma3").config.n_layers
    assert sum(isinstance(node, NormNode) for node in nodes) == 2 * n_layers
