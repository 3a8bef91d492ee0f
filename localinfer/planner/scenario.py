"""Several equal requests against a KV budget and a deadline: what fits, how long it takes, what to choose.

A scenario holds the requests' KV (a shared prefix once, in whole pages), fills in the prompts, then decodes all of
them together. Where the KV of all does not fit, they come in waves. Times are the device's bounds, or measured ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from localinfer.planner.capacity import RequestShape, max_requests, requests_kv_bytes
from localinfer.planner.plan import KV_CHOICES, Plan, kv_choices, kv_name, with_kv
from localinfer.planner.speed import prefill_bound_s, step_bound_s
from localinfer.records import dataclass, replace
from localinfer.units import format_bytes


@dataclass(frozen=True)
class Judgement:
    """Memory and time against their limits; `reason` says which one fails, or that both hold."""

    fits_memory: bool
    in_time: bool
    reason: str

    @property
    def feasible(self) -> bool:
        return self.fits_memory and self.in_time


def judge(n_bytes: int, time_s: float | None, budget_bytes: int, deadline_s: float | None = None) -> Judgement:
    """Bytes within a budget and seconds within a deadline. An unknown time meets no deadline."""
    fits = n_bytes <= budget_bytes
    in_time = deadline_s is None or (time_s is not None and time_s <= deadline_s)
    reasons = []
    if not fits:
        reasons.append(f"needs {format_bytes(n_bytes)} of {format_bytes(budget_bytes)}")
    if deadline_s is not None and time_s is None:
        reasons.append("time unknown")
    elif not in_time:
        reasons.append(f"takes {time_s:.2f} s of {deadline_s:g} s")
    return Judgement(fits, in_time, "; ".join(reasons) or "fits" + (", in time" if deadline_s is not None else ""))


def scenario_s(
    prefill_s: float, step_s: float, output: int, tokens_per_round: float = 1.0, round_s: float = 0.0
) -> float:
    """Prefill, then rounds of a step and `round_s` of drafting, each yielding tokens_per_round tokens."""
    return prefill_s + (output - 1) / tokens_per_round * (step_s + round_s)


@dataclass(frozen=True)
class Outcome:
    """One configuration of a scenario."""

    kv: str
    shared: bool
    kv_bytes: int
    capacity: int  # requests that the KV budget holds at once
    prefill_s: float | None
    step_s: float | None
    time_s: float | None  # of all requests
    judgement: Judgement
    tokens_per_round_needed: float | None  # drafting that would meet the deadline; None: not needed or hopeless


def outcome(plan: Plan, shape: RequestShape, requests: int, kv_budget: int, deadline_s: float | None) -> Outcome:
    """One configuration: the plan's KV types, the shape's shared prefix (0: independent requests)."""
    assert plan.kv is not None
    token_bytes = plan.kv.token_bytes
    n_bytes = requests_kv_bytes(shape, requests, token_bytes)
    at_once = min(requests, max_requests(shape, token_bytes, kv_budget))
    prefill = _prefill_s(plan, shape, requests)
    step = step_bound_s(plan, requests_kv_bytes(shape, at_once, token_bytes), at_once) if at_once else None
    waves = -(-requests // at_once) if at_once else 0
    time = None
    if prefill is not None and step is not None:
        time = prefill + waves * (shape.output - 1) * step
    verdict = judge(n_bytes, time, kv_budget, deadline_s)
    needed = _rounds_needed(shape.output, prefill, step, deadline_s) if not verdict.in_time and waves == 1 else None
    return Outcome(
        plan.ask.kv_name, bool(shape.shared_prefix), n_bytes,
        max_requests(shape, token_bytes, kv_budget), prefill, step, time, verdict, needed,
    )  # fmt: skip


def _prefill_s(plan: Plan, shape: RequestShape, requests: int) -> float | None:
    """A shared prefix is computed once, each request's own part after it."""
    shared = shape.shared_tokens()
    own = prefill_bound_s(plan, shape.prompt - shared, shared) if shape.prompt > shared else 0.0
    first = prefill_bound_s(plan, shared) if shared else 0.0
    return None if own is None or first is None else first + requests * own


def _rounds_needed(output: int, prefill: float | None, step: float | None, deadline_s: float | None) -> float | None:
    if prefill is None or step is None or deadline_s is None or deadline_s <= prefill:
        return None
    return (output - 1) * step / (deadline_s - prefill)


def compare(
    plan: Plan, shape: RequestShape, requests: int, kv_budget: int, deadline_s: float | None = None
) -> list[Outcome]:
    """The asked KV types first, then smaller ones; each with the shared prefix (where there is one) and without."""
    asked = (plan.ask.kv_k, plan.ask.kv_v)
    smaller = [c for c in kv_choices(plan.model) if c != asked and _token_bytes(plan, c) < _token_bytes(plan, asked)]
    shapes = dict.fromkeys((replace(shape, shared_prefix=0), shape))
    return [outcome(with_kv(plan, *kv), s, requests, kv_budget, deadline_s) for kv in (asked, *smaller) for s in shapes]


def _token_bytes(plan: Plan, kv: tuple[str, str]) -> int:
    spec = with_kv(plan, *kv).kv
    assert spec is not None
    return spec.token_bytes


def best(outcomes: Iterable[Outcome]) -> Outcome:
    """The feasible outcome with the largest KV type, then the least time; else what fits, else the smallest."""
    quality = [kv_name(k, v) for k, v in (("f32", "f32"), *KV_CHOICES)]

    def rank(o: Outcome) -> tuple[bool, bool, int, float, int]:
        time = o.time_s if o.time_s is not None else float("inf")
        worse = quality.index(o.kv) if o.kv in quality else len(quality)
        return (not o.judgement.feasible, not o.judgement.fits_memory, worse, time, o.kv_bytes)

    return min(outcomes, key=rank)
