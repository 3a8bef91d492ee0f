"""Paged weights: the same bits as from the mapped file, rooms that are used again, faults in one line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.make_large_model import Shape, write_model
from localinfer.backends.cpu.backend import CpuBackend, CpuModel
from localinfer.backends.cpu.paging import lay_out_ring
from localinfer.errors import BackendError, FormatError
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig
from localinfer.planner.facts import ModelFacts
from localinfer.planner.plan import paging_for
from tests.backends.cpu.conftest import GOLDEN, tokens

EXPERTS = Shape(n_embd=64, n_ff=32, n_heads=2, n_kv_heads=1, d_head=32, n_experts=32, n_used=4)
DENSE = Shape(n_embd=64, n_ff=256, n_heads=2, n_kv_heads=1, d_head=32)
TINY = ["llama", "gemma3", "falcon-h1", "llama256-moe-Q4_K_M"]


class Loaded:
    """A model with and without paging."""

    def __init__(self, backend: CpuBackend, path: Path, budget_share: float) -> None:
        self.file = GGUFFile.open(path)
        self.config = ModelConfig.from_gguf(self.file)
        facts = ModelFacts.from_gguf(self.file)
        self.plan = paging_for(facts, int(facts.tensor_bytes * budget_share))
        self.model: CpuModel = backend.load(self.file, self.config, lambda fraction, what: None, self.plan)

    def logits(self, ids: list[int], steps: tuple[int, ...] = (16, 1, 1, 2, 5, 1)) -> np.ndarray:
        """After each id, fed in these steps."""
        kv = self.model.new_kv(KVSpec.from_config(self.config, 256, "f32", "f32", 32))
        parts, at = [], 0
        for n in steps:
            parts.append(self.model.forward(ids[at : at + n], kv, n))
            at += n
        return np.concatenate(parts)

    def close(self) -> None:
        self.model.close()
        self.file.close()


@pytest.fixture
def load(backend: CpuBackend) -> Iterator[Callable[[Path, float], Loaded]]:
    loaded: list[Loaded] = []

    def make(path: Path, budget_share: float) -> Loaded:
        loaded.append(Loaded(backend, path, budget_share))
        return loaded[-1]

    yield make
    for one in loaded:
        one.close()


@pytest.mark.parametrize("name", TINY)
def test_the_same_bits_whatever_stays_in_memory(load, name: str) -> None:
    path, ids = GOLDEN / f"{name}.gguf", tokens(name)
    plain = load(path, 2.0)
    assert plain.plan is None and plain.model.paging is None
    expected = plain.logits(ids)
    for share in (0.0, 0.5, 0.9):
        paged = load(path, share)
        assert np.array_equal(paged.logits(ids), expected), share
        assert paged.model.paging.read_bytes > 0


def test_every_pass_streams_each_layer_once_and_a_chunk_is_one_pass(load, tmp_path: Path) -> None:
    path = tmp_path / "dense.gguf"
    write_model(path, DENSE, 3_000_000, vocabulary=512)
    paged, ids = load(path, 0.3), list(range(3, 35))
    assert paged.plan.streamed_bytes > paged.plan.buffer_bytes
    kv = paged.model.new_kv(KVSpec.from_config(paged.config, 256, "f32", "f32", 32))
    for chunk in (ids, ids[:1], ids[:1]):
        paged.model.forward(chunk, kv, 1)
    read = paged.model.paging.read_bytes
    # three passes, and what was read ahead for a fourth: no more than the buffers hold
    # (a plan counts pages that two tensors share twice)
    assert 2.2 * paged.plan.streamed_bytes < read <= 3 * paged.plan.streamed_bytes + paged.plan.buffer_bytes


def test_memory_is_what_the_plan_says(load, tmp_path: Path) -> None:
    for name, shape in (("dense", DENSE), ("moe", EXPERTS)):
        path = tmp_path / f"{name}.gguf"
        write_model(path, shape, 3_000_000, vocabulary=512)
        for share in (0.0, 0.3, 0.7):
            paged = load(path, share)
            assert paged.model.copied_bytes <= paged.plan.kept_bytes + paged.plan.buffer_bytes


def test_experts_stay_by_use_and_come_when_chosen(load, tmp_path: Path) -> None:
    """Few experts fit: a prompt that needs nearly all of them goes through, and favourites are found in memory."""
    path = tmp_path / "moe.gguf"
    write_model(path, EXPERTS, 3_000_000, vocabulary=512)
    ids = [int(t) for t in np.random.default_rng(1).integers(3, 512, 120)]
    steps = (32, *([1] * 60))
    plain, paged = load(path, 2.0), load(path, 0.5)
    assert paged.plan.expert_bytes < 0.6 * paged.plan.all_expert_bytes
    assert np.array_equal(paged.logits(ids, steps), plain.logits(ids, steps))
    state = paged.model.paging
    evenly = paged.plan.expert_bytes / paged.plan.all_expert_bytes
    assert 0 < state.hits < state.lookups and state.hits / state.lookups > evenly


def test_least_memory_still_gets_through(load, tmp_path: Path) -> None:
    path = tmp_path / "moe.gguf"
    write_model(path, EXPERTS, 1_500_000, vocabulary=512)
    ids = list(range(3, 40))
    assert np.array_equal(load(path, 0.0).logits(ids), load(path, 2.0).logits(ids))


def test_a_file_that_was_cut_is_an_error_and_another_pass_may_follow(load, tmp_path: Path) -> None:
    path = tmp_path / "dense.gguf"
    write_model(path, DENSE, 3_000_000, vocabulary=512)
    whole = path.read_bytes()
    paged, ids = load(path, 0.2), list(range(3, 20))
    kv = paged.model.new_kv(KVSpec.from_config(paged.config, 256, "f32", "f32", 32))
    expected = paged.model.forward(ids, kv, 1)
    os.truncate(path, len(whole) * 2 // 3)
    with pytest.raises(BackendError, match="the file ends within tensor"):
        for _ in range(2):  # what was read ahead may still be whole
            paged.model.forward(ids[:1], kv, 0)
    with path.open("r+b") as f:  # the same inode, whole again
        f.write(whole)
    kv.truncate(0)
    assert np.array_equal(paged.model.forward(ids, kv, 1), expected)  # what was read ahead while it was short, again


def test_experts_of_a_file_that_was_cut(load, tmp_path: Path) -> None:
    path = tmp_path / "moe.gguf"
    write_model(path, EXPERTS, 3_000_000, vocabulary=512)
    paged = load(path, 0.8)
    assert not paged.plan.streamed
    os.truncate(path, path.stat().st_size // 2)
    kv = paged.model.new_kv(KVSpec.from_config(paged.config, 256, "f32", "f32", 32))
    with pytest.raises(BackendError, match=r"ends within tensor blk\.\d+\.ffn_\w+_exps\.weight, expert \d+"):
        paged.model.forward(list(range(3, 30)), kv, 1)


def test_a_changed_file_is_found_out(tmp_path: Path) -> None:
    path = Path(shutil.copy(GOLDEN / "llama.gguf", tmp_path))
    with GGUFFile.open(path) as file:
        file.check_unchanged()
        os.truncate(path, file.file_bytes - 4096)
        with pytest.raises(BackendError, match="was cut while in use"):
            file.check_unchanged()
    with GGUFFile.open(Path(shutil.copy(GOLDEN / "llama.gguf", tmp_path))) as file:
        os.utime(path, ns=(1, 1))
        with pytest.raises(BackendError, match="was changed while in use"):
            file.check_unchanged()
        path.unlink()  # removed or replaced: what is open stays as it was
        file.check_unchanged()


def test_a_room_is_not_written_before_its_last_reader_is_done() -> None:
    """Two sets of two units in a ring for three: each unit waits for exactly the set that used its room last."""
    ring = lay_out_ring([4096] * 4, [0, 0, 1, 1], 3 * 4096)
    assert ring.offsets == [0, 4096, 8192, 0]
    # unit 3 writes over unit 0 of the set before; 0 over 3 of the set before; 1 and 2 only over themselves, a pass ago
    assert ring.after == [1, 2, 2, 1]


def test_buffers_that_are_too_small_are_refused() -> None:
    with pytest.raises(FormatError, match="largest tensor"):
        lay_out_ring([8192], [0], 4096)
    with pytest.raises(FormatError, match="do not hold"):
        lay_out_ring([4096, 4096], [0, 0], 4096)
