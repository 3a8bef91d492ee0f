"""What a smaller KV type saves, next to what it was measured to cost."""

from __future__ import annotations

from localinfer.planner.kv_quality import MEASURED, chosen_trade, kv_trades
from localinfer.planner.plan import Ask, make_plan, with_kv
from localinfer.planner.report import plan_notes
from localinfer.units import GIB, format_bytes
from tests.planner.test_plan import budget


def test_each_smaller_type_has_a_line_with_bytes_and_cost(sparse_models):
    plan = make_plan(sparse_models.facts("qwen3-8b-q4_k"), budget(64 * GIB), Ask(ctx=32768))
    q8, mixed, q4 = kv_trades(plan)
    assert q8.startswith(f"q8_0 KV saves {format_bytes(plan.parts['kv'] * 15 // 32)}")  # 34 bytes in the place of 64
    assert mixed.startswith("q8_0/q4_0 KV saves") and q4.startswith("q4_0 KV saves")
    for measured in MEASURED:
        line = next(line for line in (q8, mixed, q4) if line.startswith(f"{measured.kv} KV"))
        assert f"{measured.kl:.1e} on {measured.model}" in line


def test_a_plan_with_a_smaller_type_notes_what_that_costs(sparse_models):
    plan = make_plan(sparse_models.facts("qwen3-8b-q4_k"), budget(64 * GIB), Ask(ctx=32768))
    quantized = with_kv(plan, "q8_0", "q8_0")
    assert kv_trades(quantized) == [] and chosen_trade(plan) == []
    assert chosen_trade(quantized) == [kv_trades(plan)[0]]
    assert chosen_trade(quantized)[0] in plan_notes(quantized)
