"""What a quantized KV cache cost where it was measured: mean KL divergence from an f16 cache.

Measured with `localinfer eval MODEL --text FILE --compare-kv` on the Apache 2.0 licence (cpu_kernels/PROFILE.md). For
another model these are an idea of the size and no promise; the same command measures it, and from then on the plan
shows what it found (kv_cost.py).
"""

from __future__ import annotations

from typing import Any

from localinfer.planner.plan import Plan, with_kv
from localinfer.records import dataclass
from localinfer.units import format_bytes


@dataclass(frozen=True)
class KVQuality:
    model: str
    kv: str
    kl: float  # nats a token


SHIPPED: tuple[KVQuality, ...] = (
    KVQuality("SmolLM2-135M", "q8_0", 3.5e-4),
    KVQuality("SmolLM2-135M", "q8_0/q4_0", 6.9e-3),
    KVQuality("SmolLM2-135M", "q4_0", 4.9e-2),
    KVQuality("Gemma-3-270M", "q8_0", 5.4e-4),
    KVQuality("Gemma-3-270M", "q8_0/q4_0", 5.1e-3),
    KVQuality("Gemma-3-270M", "q4_0", 7.0e-2),
)


def kv_trades(plan: Plan) -> list[str]:
    """A line for each smaller KV type: what it saves here, and what it cost where that was measured."""
    if plan.kv is None or plan.ask.kv_name != "f16":
        return []
    return [_line(plan, with_kv(plan, *pair)) for pair in SMALLER if with_kv(plan, *pair).total < plan.total]


def chosen_trade(plan: Plan) -> list[str]:
    """The same of the type that the plan is made with."""
    if plan.kv is None or (plan.ask.kv_k, plan.ask.kv_v) not in SMALLER:
        return []
    return [_line(with_kv(plan, "f16", "f16"), plan)]


SMALLER = (("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0"))


def trades_json(plan: Plan) -> list[dict[str, Any]]:
    """The lines' figures: bytes saved against f16; the cost on this file, or the shipped figures of other models."""
    if plan.kv is None or plan.model.kv_type:
        return []
    whole = with_kv(plan, "f16", "f16")
    return [_figures(with_kv(plan, *pair), whole) for pair in SMALLER]


def _figures(smaller: Plan, whole: Plan) -> dict[str, Any]:
    kv = smaller.ask.kv_name
    here = smaller.model.kv_cost.get(kv)
    return {
        "kv": kv, "saved_bytes": whole.total - smaller.total,
        "measured": here and {"kld_mean": here.kl, "top1": here.top1, "tokens": here.tokens, "when": here.when},
        "shipped": [{"model": q.model, "kld_mean": q.kl} for q in SHIPPED if q.kv == kv],
    }  # fmt: skip


def _line(plan: Plan, smaller: Plan) -> str:
    kv = smaller.ask.kv_name
    return f"{kv} KV saves {format_bytes(plan.total - smaller.total)}; {_cost(smaller, kv)}"


def _cost(plan: Plan, kv: str) -> str:
    here = plan.model.kv_cost.get(kv)
    if here:
        return f"measured on this file: KL divergence {here.kl:.1e}, {here.top1:.1%} same best token ({here.when})"
    shipped = ", ".join(f"{q.kl:.1e} on {q.model}" for q in SHIPPED if q.kv == kv)
    if shipped:
        return f"KL divergence as shipped, of other models: {shipped}; `eval --compare-kv` measures this one"
    return "`eval --compare-kv` measures its cost"
