"""Repairs: only what helps, in order of what it costs, and each one true when it is tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localinfer.planner.budget import MemoryBudget
from localinfer.planner.devices import find_device
from localinfer.planner.ladder import page_to_fit, repairs, with_paged_chunk
from localinfer.planner.plan import Ask, make_plan, with_chunk, with_ctx, with_kv
from localinfer.planner.speed import weight_read_bytes
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
    copying = (facts.tensor_bytes - embedding - keep) / 32e9
    computing = weight_read_bytes(facts) / plan.budget.bandwidth_bytes_s
    assert 1 / page.tok_s_bound == pytest.approx(copying + computing, rel=0.03)


@pytest.mark.parametrize("name", ["qwen3-30b-a3b-q4_k", "llama-3.1-8b-q4_k"])
def test_the_largest_contexts_of_a_paged_plan_are_those_at_which_paging_still_does(sparse_models, name):
    """Weights give way to context: not the context that happened to be asked for, beside weights that fill the rest."""
    plan = paged(sparse_models, name, 4 * GIB, 2048)
    assert plan.binding == "weights" and set(plan.max_ctx) == {"f16", "q8_0", "q8_0/q4_0", "q4_0"}
    for kv, ctx in plan.max_ctx.items():
        k, _, v = kv.partition("/")
        assert ctx > 2048
        longest = page_to_fit(with_ctx(with_kv(plan, k, v or k), ctx))
        assert longest is not None and longest.left >= 0 and longest.max_ctx == plan.max_ctx
        assert page_to_fit(with_ctx(with_kv(plan, k, v or k), ctx + ctx // 4)) is None


def test_a_model_that_pages_is_helped_by_a_smaller_file_not_by_less_context(sparse_models):
    assert [r.change.split(" file")[0] for r in repairs(paged(sparse_models, "llama-3.1-8b-q4_k", 4 * GIB, 2048))] == [
        "a Q2_K"
    ]
    facts = sparse_models.facts("llama-3.1-8b-q4_k")
    budget = MemoryBudget("x", "cpu", 64 * GIB, 64 * GIB, 0, "")
    assert repairs(make_plan(facts, budget, Ask(ctx=2048, weight_budget=GIB))) == []  # as asked: all of it would fit


def paged(sparse_models, name, memory, ctx, disk=3e8):
    """On so much memory a part of the weights is read for every token, and for every chunk of a prompt."""
    facts = sparse_models.facts(name)
    budget = MemoryBudget("x", "cpu", memory, memory, 0, "", flops=400e9, link_bytes_s=disk)
    plan = page_to_fit(make_plan(facts, budget, Ask(ctx=ctx)))
    assert plan is not None and plan.paging is not None
    return plan


def test_prompts_go_through_in_larger_chunks_where_that_reads_less(sparse_models):
    """The chunk's scratch is counted, and leaves less room for experts."""
    plan = paged(sparse_models, "qwen3-30b-a3b-q4_k", 8 * GIB, 16384)
    chosen = with_paged_chunk(plan, keep_budget=False)
    assert chosen.ask.chunk > plan.ask.chunk == 512 and chosen.left >= 0
    assert chosen.parts["scratch"] > plan.parts["scratch"] and chosen.total <= plan.budget.budget_bytes
    assert chosen.paging.expert_bytes < plan.paging.expert_bytes

    def read(p):
        """A prompt of 8,192 tokens, each chunk of which needs all experts, and an answer of 256."""
        missing = p.paging.all_expert_bytes - p.paging.expert_bytes
        return 8192 // p.ask.chunk * (p.paging.streamed_bytes + missing) + 256 * p.paging.token_bytes

    assert read(chosen) == min(read(page_to_fit(with_chunk(plan, n))) for n in (512, 1024, 2048)) < read(plan)


@pytest.mark.parametrize("disk", [5e9, None])
def test_a_disk_that_is_quick_enough_to_hide_behind_multiplying_needs_no_larger_chunk(sparse_models, disk):
    """Its scratch would take memory from what the answer uses. Nor does one whose speed nobody knows."""
    plan = paged(sparse_models, "qwen3-30b-a3b-q4_k", 8 * GIB, 16384, disk)
    assert with_paged_chunk(plan, keep_budget=False) is plan


def test_a_chunk_that_was_asked_for_or_a_short_context_stays(sparse_models):
    plan = paged(sparse_models, "qwen3-8b-q4_k", 5 * GIB, 4096)
    assert with_paged_chunk(plan, keep_budget=False).ask.chunk == 512  # its scratch would cost more than it saves
    other = with_chunk(plan, 256)
    assert with_paged_chunk(other, keep_budget=False) is other


def test_on_top_of_a_weight_budget_a_larger_chunk_costs_no_weights(sparse_models):
    facts = sparse_models.facts("qwen3-8b-q4_k")
    ask = Ask(ctx=4096, weight_budget=2 * GIB)
    budget = MemoryBudget("x", "cpu", 8 * GIB, 8 * GIB, 0, "", flops=400e9, link_bytes_s=1e8)
    plan = make_plan(facts, budget, ask)
    chosen = with_paged_chunk(plan, keep_budget=True)
    assert chosen.ask.chunk == 2048 and chosen.paging == plan.paging  # half of the context is read at once
