"""What drafting can gain: v(m) worked out by hand, from measurements, and the best length by it."""

from __future__ import annotations

import pytest

from localinfer.planner.devices import find_device
from localinfer.planner.draft_forecast import MOST, best_gain, draft_forecast, interpolated, verify_bound
from localinfer.planner.drafting import best_draft
from localinfer.planner.efficiency import MeasuredSpeed
from localinfer.planner.plan import Ask, make_plan


def plan_for(sparse_models, device, model="qwen3-8b-bf16", ctx=2048):
    return make_plan(sparse_models.facts(model), find_device(device).budget(), Ask(ctx=ctx))


def test_memory_bound_checks_are_free_until_the_multiplications_outweigh_them(sparse_models):
    """RTX PRO 6000: a step reads 15.44 GB in 8.62 ms; a token's 15.1 GFLOP take 0.03 ms."""
    cost = verify_bound(plan_for(sparse_models, "rtx-pro-6000"))
    assert cost == [1.0] * (MOST + 1)
    slow = verify_bound(plan_for(sparse_models, "m2-max-96gb"))
    assert slow[0] == 1.0 and slow == sorted(slow) and slow[-1] < 2


def test_tokens_that_choose_other_experts_read_more(sparse_models):
    """128 experts, 8 used: two tokens touch 15.5 on average, so v(2) is nearly 2 for the experts' share."""
    plan = plan_for(sparse_models, "rtx-pro-6000", "qwen3-30b-a3b-q4_k")
    touched = plan.model.touched
    step = touched.read_bytes + plan.kv.token_bytes * 2048
    expected = 1 + touched.routed_bytes * (15.5 / 8 - 1) / step
    assert verify_bound(plan)[1] == pytest.approx(expected, rel=1e-6)


def test_the_length_is_the_planners_own_choice():
    cost = [1 + 0.2 * k for k in range(MOST + 1)]
    for accept in (0.1, 0.3, 0.6, 0.9):
        choice = best_draft(accept, draft_cost=0.2, most=MOST)
        assert best_gain(accept, cost) == pytest.approx((accept, choice.draft, choice.speedup))


def test_measured_costs_come_first_and_are_filled_in():
    assert interpolated({1: 1.0, 2: 1.2, 4: 2.0}, 6) == pytest.approx([1.0, 1.2, 1.6, 2.0, 2.4, 2.8])
    assert interpolated({1: 1.0, 2: 0.9, 3: 1.5}, 3) == [1.0, 1.0, 1.5]


def test_measured_costs_reach_the_forecast(sparse_models):
    plan = plan_for(sparse_models, "m2-max-96gb")
    found = draft_forecast(plan, MeasuredSpeed(verify={1: 1.0, 2: 2.5, 16: 40.0}))
    assert [g.draft for g in found.gains] == [0, 0, 0] and "bench measured" in found.basis
    assert draft_forecast(plan).gains[-1].gain > 4  # at best, with 9 of 10 guesses right
    assert draft_forecast(plan, MeasuredSpeed()).basis.endswith("not measured")


def test_no_rates_no_forecast(sparse_models):
    budget = find_device("m2-max-96gb").budget()
    for unknown in ({"flops": None}, {"bandwidth_bytes_s": None}):
        from dataclasses import replace

        plan = make_plan(sparse_models.facts("qwen3-8b-bf16"), replace(budget, **unknown), Ask(ctx=2048))
        assert draft_forecast(plan) is None
