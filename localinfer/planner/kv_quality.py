"""What a quantized KV cache cost where it was measured: mean KL divergence from an f16 cache.

Measured with `localinfer eval MODEL --text FILE --compare-kv` on the Apache 2.0 licence (cpu_kernels/PROFILE.md). For
another model these are an idea of the size and no promise; the same command measures it.
"""

from __future__ import annotations

from localinfer.planner.plan import Plan, with_kv
from localinfer.records import dataclass
from localinfer.units import format_bytes


@dataclass(frozen=True)
class KVQuality:
    model: str
    kv: str
    kl: float  # nats a token


MEASURED: tuple[KVQuality, ...] = (
    KVQuality("SmolLM2-135M", "q8_0", 3.7e-4),
    KVQuality("SmolLM2-135M", "q4_0", 8.3e-2),
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


def _line(plan: Plan, smaller: Plan) -> str:
    kv = smaller.ask.kv_name
    cost = ", ".join(f"{q.kl:.1e} on {q.model}" for q in MEASURED if q.kv == kv)
    saved = f"{kv} KV saves {format_bytes(plan.total - smaller.total)}"
    return f"{saved}; its measured KL divergence: {cost}" if cost else f"{saved}; `eval --compare-kv` measures its cost"
