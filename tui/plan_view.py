"""A planner's Plan as the screens draw it: parts as shares of the budget, the verdict in words, repairs as options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from localinfer.errors import LocalinferError, UsageError
from localinfer.tui.bridge import EngineOptions
from localinfer.units import format_bytes, parse_bytes, parse_tokens

PART_NAMES = {"weights": "weights", "kv": "KV cache", "scratch": "scratch", "logits": "logits", "draft": "drafting",
              "paging_buffers": "paging", "runtime": "runtime"}  # fmt: skip
VERDICT_WORDS = {"fits": "It fits.", "tight": "It fits, but it is tight.", "pages": "It fits with weights paged in.",
                 "does_not_fit": "It does not fit.", "unknown": "It cannot be said whether it fits."}  # fmt: skip
LIMIT_WORDS = {"weights": "the weights", "kv": "the KV cache", "scratch": "scratch memory", "logits": "the logits",
               "free_memory": "what other programs hold", "trained_context": "the context it was trained on",
               "runtime": "the program itself", "draft": "drafting", "paging_buffers": "paging"}  # fmt: skip


@dataclass(frozen=True)
class PartBar:
    """One part of the sum; `share` is of the budget."""

    part: str
    name: str
    n_bytes: int
    share: float


def part_bars(plan: Any) -> list[PartBar]:
    """The parts that take anything, in the planner's order."""
    budget = max(plan.budget.budget_bytes, 1)
    return [PartBar(part, PART_NAMES.get(part, part), n, n / budget) for part, n in plan.parts.items() if n]


def verdict_words(plan: Any) -> str:
    """The verdict, what is left, what binds."""
    words = VERDICT_WORDS.get(plan.verdict, plan.verdict)
    room = f"{format_bytes(plan.left)} are left" if plan.left >= 0 else f"{format_bytes(-plan.left)} are missing"
    binds = LIMIT_WORDS.get(plan.binding, plan.binding)
    tail = f"What limits it: {binds}." if plan.binding != "unknown" else plan.unknown
    if plan.binding == "trained_context" and plan.ask.ctx < plan.model.n_ctx_train:
        tail = f"A context up to {plan.model.n_ctx_train:,}, what it was trained on, would fit too."
    return f"{words} {room} of {format_bytes(plan.budget.budget_bytes)}. {tail}"


def repairs_of(plan: Any) -> list[Any]:
    """The planner's repairs, cheapest first."""
    from localinfer.planner.ladder import repairs

    return list(repairs(plan))


def notes_of(plan: Any) -> list[str]:
    """What a user should know; of an f16 cache also what each smaller type would save and cost."""
    from localinfer.planner.kv_quality import kv_trades
    from localinfer.planner.report import plan_notes

    return [*plan_notes(plan), *kv_trades(plan)]


def speed_words(plan: Any) -> str:
    """The upper bound of the decoding rate and what it is based on; empty where the machine is not known."""
    from localinfer.device import measured_speed
    from localinfer.planner.speed import speed_of

    speed = speed_of(plan, measured_speed(plan.budget.platform))
    if speed.decode_tok_s_bound is None and speed.decode_tok_s_expected:
        return f"Speed: about {speed.decode_tok_s_expected:.1f} tokens/s, {speed.basis}."
    if speed.decode_tok_s_bound is None:
        return "Speed: not known for this machine; /bench measures it."
    expected = f", about {speed.decode_tok_s_expected:.1f} by measurement" if speed.decode_tok_s_expected else ""
    return (
        f"Speed: at most {speed.decode_tok_s_bound:.1f} tokens/s{expected}. {speed.basis[:1].upper()}{speed.basis[1:]}."
    )


def with_option(options: EngineOptions, option: str) -> EngineOptions | None:
    """A repair's `--ctx 8192`, `--kv q8_0` or `--weight-budget 3GiB` applied; None where it is done elsewhere."""
    name, _, value = option.partition(" ")
    try:
        if name == "--ctx":
            return replace(options, ctx=parse_tokens(value))
        if name == "--kv":
            return replace(options, kv=value)
        if name == "--weight-budget":
            return replace(options, weight_budget=parse_bytes(value))
    except LocalinferError:
        return None
    return None


def parse_options(options: EngineOptions, ctx: str, kv: str, maximum: int | None) -> EngineOptions:
    """What was typed into the controls. UsageError names the field."""
    n_ctx = parse_tokens(ctx, "context", maximum) if ctx.strip() else None
    if not kv:
        raise UsageError("KV type: expected one of the list")
    return replace(options, ctx=n_ctx, kv=kv)
