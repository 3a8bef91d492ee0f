"""Several requests: capacity, time, verdict, and which configuration is chosen."""

from __future__ import annotations

import pytest

from localinfer.planner.capacity import RequestShape
from localinfer.planner.devices import find_device
from localinfer.planner.plan import Ask, make_plan
from localinfer.planner.scenario import best, compare, judge
from localinfer.planner.speed import prefill_bound_s, step_bound_s
from localinfer.units import GIB, MIB

SHAPE = RequestShape(8192, 256, 6144)


@pytest.fixture
def plan(sparse_models):
    ask = Ask(ctx=8448, requests=16, prompt=8192, output=256, shared_prefix=6144)
    return make_plan(sparse_models.facts("qwen3-8b-bf16"), find_device("rtx-pro-6000").budget(), ask)


def test_sixteen_requests_in_12_gib_and_7_seconds(plan):
    outcomes = compare(plan, SHAPE, 16, 12 * GIB, 7.0)
    apart, shared = outcomes[:2]
    assert (apart.kv, apart.shared, apart.kv_bytes, apart.capacity) == ("f16", False, 16 * 1188 * MIB, 10)
    assert (shared.kv, shared.shared, shared.kv_bytes, shared.capacity) == ("f16", True, 6341787648, 35)
    assert not apart.judgement.feasible and "needs 18.56 GiB of 12.00 GiB" in apart.judgement.reason
    assert shared.judgement.feasible and shared.time_s < 7
    assert best(outcomes) is shared  # feasible without giving up KV precision


def test_time_by_hand(plan):
    """A shared prefix once, 16 suffixes after it, then 255 steps that read weights and all KV pages once."""
    shared = compare(plan, SHAPE, 16, 12 * GIB)[1]
    prefill = prefill_bound_s(plan, 6144) + 16 * prefill_bound_s(plan, 2048, 6144)
    step = step_bound_s(plan, 6341787648, 16)
    assert shared.time_s == pytest.approx(prefill + 255 * step)
    assert step == pytest.approx((plan.model.touched.read_bytes + 6341787648) / 1792e9)


def test_what_does_not_fit_at_once_comes_in_waves(plan):
    apart = compare(plan, RequestShape(8192, 256), 16, 12 * GIB)[0]
    assert apart.capacity == 10
    step = step_bound_s(plan, 10 * 1188 * MIB, 10)
    assert apart.time_s == pytest.approx(16 * prefill_bound_s(plan, 8192) + 2 * 255 * step)


def test_drafting_that_would_do_is_named(plan):
    outcomes = compare(plan, SHAPE, 16, 12 * GIB, 3.0)
    late = outcomes[1]
    assert not late.judgement.in_time and late.tokens_per_round_needed > 1
    decode = late.time_s - late.prefill_s
    assert late.prefill_s + decode / late.tokens_per_round_needed == pytest.approx(3.0)
    hopeless = compare(plan, SHAPE, 16, 12 * GIB, 0.1)[1]
    assert hopeless.tokens_per_round_needed is None


def test_the_best_of_none_is_the_one_that_fits(plan):
    chosen = best(compare(plan, SHAPE, 16, 12 * GIB, 0.1))
    assert chosen.judgement.fits_memory and chosen.kv == "f16"


def test_default_kv_budget_is_what_the_rest_leaves(plan):
    assert plan.kv_room == plan.left + plan.parts["kv"]


def test_judgement():
    assert judge(10, 1.0, 10, 1.0).feasible
    assert not judge(11, 1.0, 10).feasible
    assert not judge(10, None, 10, 1.0).feasible
    assert judge(10, None, 10).feasible
