"""Bounds worked out by hand, and which basis an expectation names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localinfer.engine.planning import portable
from localinfer.planner.budget import MemoryBudget
from localinfer.planner.devices import find_device
from localinfer.planner.efficiency import MeasuredSpeed, load_speed, record_speed
from localinfer.planner.plan import Ask, make_plan
from localinfer.planner.speed import (
    distinct_experts,
    kv_read_bytes,
    paged_read_bytes,
    prefill_flops,
    speed_of,
    step_bound_s,
    weight_read_bytes,
)
from localinfer.planner.weights import dominant_type
from localinfer.units import GIB


def test_qwen3_8b_bf16_on_rtx_pro_6000(sparse_models):
    """Payload 16,381,470,720 bytes; a token reads all but the embedding table, and the KV: 8.62 ms at 2k."""
    facts = sparse_models.facts("qwen3-8b-bf16")
    norms = (36 * (2 * 4096 + 2 * 128) + 4096) * 2  # the file keeps norms as float32: two bytes more a value
    assert facts.tensor_bytes - norms == 16_381_470_720
    assert facts.touched.read_bytes - norms == 15_136_811_008
    plan = make_plan(facts, find_device("rtx-pro-6000").budget(), Ask(ctx=2048))
    speed = speed_of(plan)
    assert speed.read_bytes_per_token == facts.touched.read_bytes + 2048 * 147456
    assert 1000 / speed.decode_tok_s_bound == pytest.approx(8.62, abs=0.005)
    assert speed.decode_tok_s_expected is None and speed.basis.startswith("bound only")


def test_unused_experts_are_not_read(sparse_models):
    facts = sparse_models.facts("qwen3-30b-a3b-q4_k")
    experts = sum(i.n_bytes for n, i in facts.tensors.items() if "_exps" in n)
    embedding = facts.tensors["token_embd.weight"].n_bytes
    assert facts.touched.read_bytes == facts.tensor_bytes - embedding - experts + experts * 8 // 128
    assert facts.touched.routed_bytes == experts * 8 // 128


def test_a_batch_touches_more_experts(sparse_models):
    facts = sparse_models.facts("qwen3-30b-a3b-q4_k")
    assert distinct_experts(128, 8, 1) == pytest.approx(8)
    assert distinct_experts(128, 8, 1000) == pytest.approx(128)
    assert weight_read_bytes(facts, 1) < weight_read_bytes(facts, 4) < 4 * weight_read_bytes(facts, 1)


def test_a_tied_embedding_is_read_as_the_output_matrix(sparse_models):
    facts = sparse_models.facts("gemma-3-12b-q4_k")
    assert facts.touched.read_bytes == facts.tensor_bytes


def test_windows_are_read_and_not_the_ring(sparse_models):
    plan = make_plan(sparse_models.facts("gemma-3-12b-q4_k"), MemoryBudget("x", "cpu", GIB, GIB, 0, ""), Ask(ctx=8192))
    assert kv_read_bytes(plan, 8192) == (8 * 8192 + 40 * 1024) * 8192
    assert kv_read_bytes(plan, 100) == 48 * 100 * 8192


def test_prefill_flops_by_hand(sparse_models):
    """2 FLOPs a weight and token, 4 * heads * head size for each query-key pair, logits once."""
    facts = sparse_models.facts("qwen3-8b-bf16")
    matrices = 36 * (4096 * 128 * (2 * 32 + 2 * 8) + 3 * 4096 * 12288)
    pairs = 512 * 513 // 2
    assert prefill_flops(facts, 512) == 2 * (matrices * 512 + 151936 * 4096) + 36 * pairs * 4 * 32 * 128
    assert prefill_flops(facts, 512) + prefill_flops(facts, 512, 512) - prefill_flops(facts, 1024) == 2 * 151936 * 4096


def test_paging_is_bound_by_the_link(sparse_models):
    facts = sparse_models.facts("qwen3-8b-bf16")
    budget = find_device("rtx-4090").budget()
    half = Ask(ctx=2048, weight_budget=facts.tensor_bytes // 2)
    plan = make_plan(facts, budget, half)
    whole, paged = (speed_of(p).decode_tok_s_bound for p in (make_plan(facts, budget, Ask(ctx=2048)), plan))
    assert paged < whole / 10
    embedding = facts.tensors["token_embd.weight"].n_bytes  # only a row of it is read
    computing = speed_of(plan).read_bytes_per_token / budget.bandwidth_bytes_s  # nothing is copied meanwhile
    assert 32e9 * (1 / paged - computing) == pytest.approx(facts.tensor_bytes / 2 - embedding, rel=0.02)
    assert "pages: " in speed_of(plan).basis and "over 32 GB/s, at most" in speed_of(plan).basis
    unknown = speed_of(replace(plan, budget=replace(budget, link_bytes_s=None)))
    assert unknown.decode_tok_s_bound is None and "disk" in unknown.basis


def test_expectation_comes_from_this_types_share_or_the_lowest(sparse_models):
    facts = sparse_models.facts("qwen3-8b-q4_k")
    assert dominant_type(facts.tensors) == "Q4_K"
    plan = make_plan(facts, find_device("rtx-4090").budget(), Ask(ctx=2048))
    bound = speed_of(plan).decode_tok_s_bound
    exact = speed_of(plan, MeasuredSpeed(mbu={"Q4_K": 0.5, "Q8_0": 0.25}, when="2026-01-02"))
    assert exact.decode_tok_s_expected == pytest.approx(bound / 2)
    assert "50% of" in exact.basis and "Q4_K" in exact.basis and "2026-01-02" in exact.basis
    other = speed_of(plan, MeasuredSpeed(mbu={"Q6_K": 0.75, "Q8_0": 0.25}))
    assert other.decode_tok_s_expected == pytest.approx(bound / 4)
    assert "Q8_0" in other.basis


def test_expectation_from_earlier_answers(sparse_models):
    """Where bench was not run, what answers here were decoded with tells, with or without a known bandwidth."""
    facts = sparse_models.facts("qwen3-8b-q4_k")
    unknown, known = (MemoryBudget("x", "cpu", 16 * GIB, 16 * GIB, 0, "", bandwidth_bytes_s=b) for b in (None, 30e9))
    read = weight_read_bytes(facts) + kv_read_bytes(make_plan(facts, known, Ask(ctx=2048)), 2048)
    answers = MeasuredSpeed(answers={"Q4_K": 12e9, "Q8_0": 11e9})
    for budget in (unknown, known):
        speed = speed_of(make_plan(facts, budget, Ask(ctx=2048)), answers)
        assert speed.decode_tok_s_expected == pytest.approx(12e9 / read)
        assert speed.basis == "as answers here were decoded: 12 GB/s of Q4_K weights"
    other = speed_of(make_plan(facts, unknown, Ask(ctx=2048)), MeasuredSpeed(answers={"Q8_0": 11e9, "F16": 20e9}))
    assert other.decode_tok_s_expected == pytest.approx(11e9 / read) and "Q8_0 weights" in other.basis
    too_good = speed_of(make_plan(facts, known, Ask(ctx=2048)), MeasuredSpeed(answers={"Q4_K": 40e9}))
    assert too_good.decode_tok_s_expected == too_good.decode_tok_s_bound
    for bench in (
        {"Q4_K": 0.5},
        {"Q6_K": 0.5},
    ):  # of this very type, or of the only other one that anything is known of
        speed = speed_of(make_plan(facts, known, Ask(ctx=2048)), MeasuredSpeed(mbu=bench, answers={"Q8_0": 11e9}))
        assert speed.decode_tok_s_expected == pytest.approx(15e9 / read) and "bench" in speed.basis


def test_a_plan_without_its_tensors_expects_the_same(sparse_models):
    """As it crosses the engine's pipe to the app."""
    plan = make_plan(
        sparse_models.facts("qwen3-8b-q4_k"), MemoryBudget("x", "cpu", 16 * GIB, 16 * GIB, 0, ""), Ask(ctx=2048)
    )
    for measured in (MeasuredSpeed(answers={"Q4_K": 12e9, "Q8_0": 2e9}), MeasuredSpeed(mbu={"Q4_K": 0.5, "Q8_0": 0.1})):
        assert speed_of(portable(plan), measured) == speed_of(plan, measured)


def test_no_bandwidth_no_bound(sparse_models):
    plan = make_plan(sparse_models.facts("qwen3-8b-q4_k"), MemoryBudget("x", "cpu", GIB, GIB, 0, ""), Ask(ctx=2048))
    speed = speed_of(plan)
    assert speed.decode_tok_s_bound is None and speed.prefill_s is None
    assert "`localinfer doctor` measures it" in speed.basis


def test_measured_speed_is_kept_by_machine_and_backend(tmp_path):
    path = tmp_path / "state" / "speed.json"
    record_speed("m1", "cpu", when="2026-01-01", bandwidth_bytes_s=3e10, mbu={"Q4_K": 0.5}, path=path)
    record_speed("m1", "cpu", when="2026-01-02", mbu={"Q8_0": 1.5}, verify={1: 1.0, 2: 1.3}, path=path)
    record_speed("m1", "metal", when="2026-01-03", flops=1e12, path=path)
    speed = load_speed("m1", "cpu", path)
    assert speed == MeasuredSpeed(3e10, None, {"Q4_K": 0.5, "Q8_0": 1.0}, {1: 1.0, 2: 1.3}, "2026-01-02")
    assert load_speed("m1", "metal", path).flops == 1e12
    assert load_speed("m2", "cpu", path) == MeasuredSpeed()


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"m": 3}', '{"m": {"cpu": {"mbu": 7, "verify": {"x": 1}, "bandwidth_bytes_s": "x"}}}']
)
def test_a_damaged_speed_file_is_as_none(tmp_path, content):
    path = tmp_path / "speed.json"
    path.write_text(content)
    assert load_speed("m", "cpu", path).bandwidth_bytes_s is None
    record_speed("n", "cpu", when="now", flops=1.0, path=path)
    assert load_speed("n", "cpu", path).flops == 1.0


def test_where_nothing_is_copied_ahead_copies_and_computing_add_up(sparse_models):
    """CUDA by MLX: no pinned buffers, no copies beside the computing."""
    facts = sparse_models.facts("qwen3-8b-q4_k")
    steps = {}
    for platform in ("metal", "cuda"):
        budget = MemoryBudget("x", platform, 8 * GIB, 8 * GIB, 0, "", bandwidth_bytes_s=1e12, link_bytes_s=2e10)
        plan = make_plan(facts, budget, Ask(ctx=4096, weight_budget=2 * GIB))
        steps[platform] = step_bound_s(plan, 0)
        stored = paged_read_bytes(plan) / 2e10
        assert ("taking turns" in speed_of(plan).basis) == (platform == "cuda")
    assert steps["metal"] == pytest.approx(stored)
    assert steps["cuda"] == pytest.approx(stored + weight_read_bytes(facts) / 1e12)
