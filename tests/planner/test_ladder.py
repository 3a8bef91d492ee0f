"""Repairs: only what helps, in order of what it costs, and each one true when it is tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localinfer.planner.budget import MemoryBudget
from localinfer.planner.devices import find_device
from localinfer.planner.ladder import repairs
from localinfer.planner.plan import Ask, make_plan, with_ctx, with_kv
from localinfer.units import GIB, MIB


@pytest.fixture
def too_long(sparse_models):
    """Qwen3-8B Q4_K at 32k f16 on 8 GiB: weights fit, 4.5 GiB of KV do not."""
    facts = sparse_models.facts("qwen3-8b-q4_k")
    return make_plan(facts, MemoryBudget("x", "cpu", 8 * GIB, 8 * GIB, 0, ""), Ask(ctx=32768))


def test_nothing_to_repair(sparse_models):
    facts = sparse_models.facts("qwen3-8b-q4_k")
    assert repairs(make_plan(facts, MemoryBudget("x", "cpu", 64 * GIB, 64 * GIB, 0, ""), Ask(ctx=4096))) == []


def test_kv_type_comes_first_and_context_next(too_long):
    found = repairs(too_long)
    kinds = ["kv" if "KV cache" in r.change else "ctx" if r.change.startswith("context") else "other" for r in found]
    assert kinds == sorted(kinds, key=["kv", "ctx", "other"].index)
    assert found[0].option == "--kv q8_0"
    assert all(r.left >= 0 and r.verdict != "does_not_fit" for r in found)


def test_repairs_hold_when_they_are_tried(too_long):
    for r in repairs(too_long):
        words = r.option.split()
        options = dict(zip(words[::2], words[1::2], strict=True))
        plan = too_long
        if "--kv" in options:
            k, _, v = options["--kv"].partition("/")
            plan = with_kv(plan, k, v or k)
        if "--ctx" in options:
            plan = with_ctx(plan, int(options["--ctx"]))
        if "--kv" in options or "--ctx" in options:
            assert (plan.verdict, plan.left) == (r.verdict, r.left)


def test_235b_at_32k_says_what_would_do(sparse_models):
    facts = sparse_models.facts("qwen3-235b-a22b-q2_k")
    plan = make_plan(facts, find_device("m2-max-96gb").budget(8 * GIB), Ask(ctx=32768))
    assert plan.verdict == "does_not_fit" and plan.binding == "kv"
    options = [r.option for r in repairs(plan)]
    assert options[0] == f"--ctx {plan.max_ctx['f16']}"
    assert f"--ctx {plan.max_ctx['q4_0']} --kv q4_0" in options
    assert any(r.change.startswith("an IQ") and r.estimated for r in repairs(plan))  # a smaller file


def test_a_smaller_quantization_is_named_with_its_size(sparse_models):
    facts = sparse_models.facts("qwen3-8b-bf16")
    plan = make_plan(facts, MemoryBudget("x", "cpu", 8 * GIB, 8 * GIB, 0, ""), Ask(ctx=4096))
    repair = next(r for r in repairs(plan) if r.estimated)
    assert repair.change.startswith("a Q6_K file of the model, about 6.2")
    assert repair.left == plan.left + facts.tensor_bytes - int(facts.params * 6.56 / 8)


def test_closing_programs(sparse_models):
    facts = sparse_models.facts("qwen3-8b-q4_k")
    budget = MemoryBudget("x", "cpu", 16 * GIB, 16 * GIB, 0, "", free_bytes=4 * GIB)
    plan = make_plan(facts, budget, Ask(ctx=4096))
    close = next(r for r in repairs(plan) if r.change.startswith("close"))
    assert close.verdict == "fits" and close.left == plan.left
    assert "GiB are in use" in close.change


def test_raising_the_gpu_limit_leaves_the_system_its_part(sparse_models):
    facts = sparse_models.facts("llama-3.3-70b-q4_k")  # 45 GB
    budget = MemoryBudget("x", "metal", 64 * GIB, 44 * GIB, 4 * GIB, "")
    plan = make_plan(facts, budget, Ask(ctx=8192))
    assert plan.verdict == "does_not_fit"
    repair = next(r for r in repairs(plan) if "iogpu.wired_limit_mb" in r.change)
    limit = int(repair.change.split("wired_limit_mb=")[1].split()[0])
    assert plan.total <= limit * MIB < plan.total + MIB
    small = replace(budget, memory_bytes=50 * GIB)  # raising would leave less than 8 GiB: not offered
    assert not [r for r in repairs(make_plan(facts, small, Ask(ctx=8192))) if "iogpu" in r.change]
    assert not [r for r in repairs(replace(plan, budget=replace(budget, platform="cpu"))) if "iogpu" in r.change]


def test_paging_forecasts_its_speed(sparse_models):
    facts = sparse_models.facts("llama-3.3-70b-q4_k")
    plan = make_plan(facts, find_device("rtx-4090").budget(), Ask(ctx=4096))
    page = next(r for r in repairs(plan) if r.verdict == "pages")
    keep = int(page.option.removeprefix("--weight-budget ").removesuffix("MiB")) * MIB
    again = make_plan(facts, plan.budget, replace(plan.ask, weight_budget=keep))
    assert again.verdict == "pages" and again.left == page.left >= 0
    embedding = facts.tensors["token_embd.weight"].n_bytes
    assert page.tok_s_bound == pytest.approx(32e9 / (facts.tensor_bytes - embedding - keep), rel=0.03)
