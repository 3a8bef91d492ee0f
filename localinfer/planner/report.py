"""A plan as plain values: what `fit --json` prints and what the app's fit panel shows.

Keys and meanings are an interface (docs/planner.md): more may be added, none renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localinfer.planner.context_limit import group_layers
from localinfer.planner.kv_quality import chosen_trade, trades_json
from localinfer.planner.ladder import Repair
from localinfer.planner.plan import PARTS, Plan
from localinfer.planner.platforms import rules_for
from localinfer.planner.speed import Speed
from localinfer.units import MIB, format_bytes

if TYPE_CHECKING:
    from localinfer.planner.draft_forecast import DraftForecast
    from localinfer.planner.scenario import Outcome


def plan_json(
    plan: Plan,
    speed: Speed,
    repairs: Sequence[Repair],
    notes: Sequence[str] = (),
    drafting: DraftForecast | None = None,
) -> dict[str, Any]:
    """The whole answer. What is unknown is null, never 0."""
    return {
        "model": _model(plan),
        "device": _device(plan),
        "ask": _ask(plan),
        "bytes": _bytes(plan),
        "rows": [{"part": r.part, "name": r.name, "bytes": r.n_bytes, "note": r.note} for r in plan.rows],
        "alone": weights_and_kv_alone(plan),
        "kv": _kv(plan),
        "kv_trades": trades_json(plan),
        "verdict": plan.verdict,
        "binding": plan.binding,
        "short_now": plan.short_now,
        "max_ctx": dict(plan.max_ctx) or None,
        "repairs": [
            {
                "change": r.change, "verdict": r.verdict, "left": r.left, "option": r.option,
                "tok_s_bound": r.tok_s_bound, "estimated": r.estimated,
            }
            for r in repairs
        ],
        "speed": {
            "read_bytes_per_token": speed.read_bytes_per_token,
            "decode_tok_s_bound": speed.decode_tok_s_bound,
            "decode_tok_s_expected": speed.decode_tok_s_expected,
            "prefill_s": speed.prefill_s,
            "basis": speed.basis,
            "drafting": None if drafting is None else _drafting(drafting),
        },
        "notes": list(notes),
    }  # fmt: skip


def _drafting(forecast: DraftForecast) -> dict[str, Any]:
    return {
        "verify_cost": list(forecast.verify_cost),
        "gains": [g._asdict() for g in forecast.gains],
        "basis": forecast.basis,
    }


def weights_and_kv_alone(plan: Plan) -> dict[str, int | None]:
    """Bytes left of the budget by the whole file, and by file and KV cache: the sum people make by hand."""
    before = plan.budget.budget_bytes - plan.model.file_bytes
    return {"before_kv": before, "after_kv": None if plan.unknown else before - plan.parts["kv"]}


def plan_notes(plan: Plan) -> list[str]:
    """What a user should know beside the numbers, one line each."""
    ask, model, notes = plan.ask, plan.model, []
    if model.n_ctx_train and ask.ctx > model.n_ctx_train:
        scaling = model.config.rope_scaling if model.config else "unknown"
        notes.append(
            f"context of {ask.ctx:,} tokens is beyond the {model.n_ctx_train:,} this model was trained on: it needs "
            f"RoPE scaling, and the file's is {scaling}; answers may degrade"
        )
    if plan.unknown:
        notes.append(f"KV cache and scratch are unknown: {plan.unknown}")
    if rules_for(plan.budget.platform, model.mapped).decoded_value_bytes:
        notes.append("this backend decodes every matrix: a copy of the model beside the file, counted under scratch")
    if plan.budget.platform == "metal" and plan.fits and plan.total > plan.budget.memory_bytes * 2 // 3:
        notes.append(
            f"macOS may let the GPU use less than this by default; if so: sudo sysctl "
            f"iogpu.wired_limit_mb={-(-plan.total // MIB)} (until the next start)"
        )
    if plan.left >= 0 and plan.short_now:
        notes.append(f"fits after closing {format_bytes(plan.short_now)} of other programs")
    notes.extend(model.config.notices if model.config else ())
    notes.extend(plan.kv.notices if plan.kv else ())
    notes.extend(chosen_trade(plan))
    return notes


def scenario_json(outcomes: Sequence[Outcome], kv_budget: int, deadline_s: float | None) -> dict[str, Any]:
    """All configurations of a scenario; `best` is one of them, by its index."""
    from localinfer.planner.scenario import best

    return {
        "kv_budget": kv_budget,
        "deadline_s": deadline_s,
        "configurations": [
            {
                "kv": o.kv, "shared_prefix": o.shared, "kv_bytes": o.kv_bytes, "capacity": o.capacity,
                "prefill_s": o.prefill_s, "step_s": o.step_s, "time_s": o.time_s,
                "feasible": o.judgement.feasible, "reason": o.judgement.reason,
                "tokens_per_round_needed": o.tokens_per_round_needed,
            }
            for o in outcomes
        ],
        "best": list(outcomes).index(best(outcomes)),
    }  # fmt: skip


def layers_json(plan: Plan) -> list[dict[str, Any]]:
    """Every layer by itself: weights and KV bytes, window, types."""
    weights: dict[int, int] = {}
    for name, info in plan.model.tensors.items():
        part = name.split(".")
        if part[0] == "blk" and len(part) > 2 and part[1].isdigit():
            weights[int(part[1])] = weights.get(int(part[1]), 0) + info.n_bytes
    layers = plan.kv.layers if plan.kv else ()
    rows = []
    for i, weight_bytes in sorted(weights.items()):
        layer = layers[i] if i < len(layers) else None
        rows.append(
            {"layer": i, "weights": weight_bytes}
            if layer is None
            else {
                "layer": i, "weights": weight_bytes, "kind": layer.kind, "kv_heads": layer.n_kv_heads,
                "d_k": layer.d_k, "d_v": layer.d_v, "window": layer.window, "k_type": layer.k_type,
                "v_type": layer.v_type, "pages": layer.n_pages, "tokens": layer.n_tokens, "kv": layer.n_bytes,
            }
        )  # fmt: skip
    return rows


def _model(plan: Plan) -> dict[str, Any]:
    m = plan.model
    return {
        "name": m.name, "arch": m.arch, "file_bytes": m.file_bytes, "params": m.params, "quant": m.quant,
        "n_ctx_train": m.n_ctx_train or None,
    }  # fmt: skip


def _device(plan: Plan) -> dict[str, Any]:
    b = plan.budget
    return {
        "name": b.name, "platform": b.platform, "memory_bytes": b.memory_bytes, "usable_bytes": b.usable_bytes,
        "reserve_bytes": b.reserve_bytes, "free_bytes": b.free_bytes, "bandwidth_bytes_s": b.bandwidth_bytes_s,
        "flops": b.flops, "source": b.source,
    }  # fmt: skip


def _ask(plan: Plan) -> dict[str, Any]:
    a = plan.ask
    return {
        "ctx": a.ctx, "kv_k": a.kv_k, "kv_v": a.kv_v, "prompt": a.prompt, "output": a.output, "requests": a.requests,
        "shared_prefix": a.shared_prefix, "chunk": a.chunk, "draft": a.draft,
    }  # fmt: skip


def _bytes(plan: Plan) -> dict[str, int | None]:
    counted = {"weights", "runtime"} if plan.unknown else set(PARTS)
    parts = {part: plan.parts[part] if part in counted else None for part in PARTS}
    return {**parts, "total": plan.total, "budget": plan.budget.budget_bytes, "left": plan.left}


def _kv(plan: Plan) -> dict[str, Any]:
    if plan.kv is None:
        return {"bytes_per_token": None, "layers": []}
    groups = group_layers(plan.kv)
    return {
        "bytes_per_token": plan.kv.token_bytes,
        "layers": [
            {"kind": g.layer.kind, "count": g.count, "tokens": g.n_tokens, "bytes": g.n_bytes, "window": g.layer.window}
            for g in groups
        ],
    }
