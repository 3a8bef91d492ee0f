"""What a smaller KV type saves, next to what it was measured to cost."""

from __future__ import annotations

from localinfer.planner.facts import KVCost
from localinfer.planner.kv_quality import SHIPPED, chosen_trade, kv_trades, trades_json
from localinfer.planner.plan import Ask, make_plan, with_kv
from localinfer.planner.report import plan_notes
from localinfer.records import replace
from localinfer.units import GIB, format_bytes
from tests.planner.test_plan import budget


def test_each_smaller_type_has_a_line_with_bytes_and_cost(sparse_models):
    plan = make_plan(sparse_models.facts("qwen3-8b-q4_k"), budget(64 * GIB), Ask(ctx=32768))
    q8, mixed, q4 = kv_trades(plan)
    assert q8.startswith(f"q8_0 KV saves {format_bytes(plan.parts['kv'] * 15 // 32)}")  # 34 bytes in the place of 64
    assert mixed.startswith("q8_0/q4_0 KV saves") and q4.startswith("q4_0 KV saves")
    for shipped in SHIPPED:
        line = next(line for line in (q8, mixed, q4) if line.startswith(f"{shipped.kv} KV"))
        assert "as shipped, of other models: " in line and f"{shipped.kl:.1e} on {shipped.model}" in line


def test_a_plan_with_a_smaller_type_notes_what_that_costs(sparse_models):
    plan = make_plan(sparse_models.facts("qwen3-8b-q4_k"), budget(64 * GIB), Ask(ctx=32768))
    quantized = with_kv(plan, "q8_0", "q8_0")
    assert kv_trades(quantized) == [] and chosen_trade(plan) == []
    assert chosen_trade(quantized) == [kv_trades(plan)[0]]
    assert chosen_trade(quantized)[0] in plan_notes(quantized)


def test_what_was_measured_on_the_file_itself_takes_the_place_of_what_is_shipped(sparse_models):
    plan = make_plan(sparse_models.facts("qwen3-8b-q4_k"), budget(64 * GIB), Ask(ctx=32768))
    known = replace(plan, model=replace(plan.model, kv_cost={"q8_0": KVCost(4.2e-4, 0.991, 510, "2026-01-02")}))
    q8, _, q4 = kv_trades(known)
    assert q8.endswith("measured on this file: KL divergence 4.2e-04, 99.1% same best token (2026-01-02)")
    assert "of other models" in q4
    rows = {row["kv"]: row for row in trades_json(with_kv(known, "q8_0", "q8_0"))}
    assert rows["q8_0"]["measured"] == {"kld_mean": 4.2e-4, "top1": 0.991, "tokens": 510, "when": "2026-01-02"}
    assert rows["q4_0"]["measured"] is None and rows["q4_0"]["shipped"][0]["model"] == "SmolLM2-135M"
    assert rows["q8_0"]["saved_bytes"] == plan.parts["kv"] * 15 // 32
