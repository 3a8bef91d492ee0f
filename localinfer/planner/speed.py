"""How fast at best, and how fast by what was measured here: Speed, from a plan and a device's bandwidth.

The bound counts every byte a token must read (weights it touches, KV at the context asked for) at the device's full
bandwidth, and every multiplication of a prompt at its full rate. Nothing real reaches it; nothing can exceed it.
"""

from __future__ import annotations

from collections.abc import Mapping

from localinfer.planner.context_limit import group_layers
from localinfer.planner.efficiency import MeasuredSpeed
from localinfer.planner.facts import ModelFacts
from localinfer.planner.plan import Plan
from localinfer.planner.platforms import rules_for
from localinfer.planner.roofline import attention_pairs, paged_tok_s, prefill_chunks, window_pairs
from localinfer.records import dataclass


@dataclass(frozen=True)
class Speed:
    """Rates of one request's decoding; None where a figure of the device is not known. `basis` says what was used."""

    read_bytes_per_token: int | None
    decode_tok_s_bound: float | None
    decode_tok_s_expected: float | None
    prefill_s: float | None
    basis: str


def kv_read_bytes(plan: Plan, depth: int) -> int:
    """Bytes of KV that one token reads at a context of `depth` tokens: all of it, or its window."""
    if plan.kv is None:
        return 0
    total = 0
    for group in group_layers(plan.kv):
        seen = min(depth, group.layer.window) if group.layer.window else depth
        total += group.count * (seen * group.layer.token_bytes + group.layer.state_bytes)
    return total


def distinct_experts(n_experts: int, n_used: int, batch: int) -> float:
    """Experts of a layer that a batch touches on average when each token chooses on its own, evenly."""
    return n_experts * (1 - (1 - n_used / n_experts) ** batch)


def weight_read_bytes(model: ModelFacts, batch: int = 1) -> int:
    """Bytes of weights that one step of `batch` sequences reads."""
    t = model.touched
    if batch == 1 or not t.routed_bytes or not model.n_experts_used:
        return t.read_bytes
    more = distinct_experts(model.n_experts, model.n_experts_used, batch) / model.n_experts_used
    return t.read_bytes + int(t.routed_bytes * (more - 1))


def prefill_flops(model: ModelFacts, n_tokens: int, history: int = 0) -> int:
    """Multiply-adds (as two) of n_tokens after `history` cached ones: matrices, attention, one row of logits."""
    assert model.config is not None
    total = 2 * (model.touched.matmul_values * n_tokens + model.touched.output_values)
    for layer in model.config.layers:
        a = layer.attention
        if a is not None:
            seen = window_pairs(n_tokens, history, a.window) if a.window else attention_pairs(n_tokens, history)
            total += 2 * seen * a.n_heads * (a.d_k + a.d_v)
    return total


def prefill_bound_s(plan: Plan, n_tokens: int, history: int = 0) -> float | None:
    """Seconds of a prefill at best: its multiplications, or its weights read once a chunk. None without FLOP/s."""
    budget = plan.budget
    if plan.model.config is None or not budget.flops or not budget.bandwidth_bytes_s:
        return None
    chunks = prefill_chunks(n_tokens, plan.ask.chunk)
    reads = chunks * plan.model.touched.read_bytes
    stored = chunks * plan.paging.chunk_bytes / budget.link_bytes_s if plan.paging and budget.link_bytes_s else 0.0
    return max(prefill_flops(plan.model, n_tokens, history) / budget.flops, reads / budget.bandwidth_bytes_s, stored)


def step_bound_s(plan: Plan, kv_bytes: int, batch: int = 1) -> float | None:
    """Seconds of a decode step that reads `kv_bytes` of KV for `batch` sequences. None without a bandwidth."""
    budget = plan.budget
    weights = weight_read_bytes(plan.model, batch)
    if plan.paging is None:
        return (weights + kv_bytes) / budget.bandwidth_bytes_s if budget.bandwidth_bytes_s else None
    if not budget.link_bytes_s:
        return None
    stored, bandwidth = paged_read_bytes(plan, batch), budget.bandwidth_bytes_s or float("inf")
    if not rules_for(budget.platform, plan.model.mapped).copies_ahead:
        return (weights + kv_bytes) / bandwidth + stored / budget.link_bytes_s
    return 1 / paged_tok_s(weights + kv_bytes, stored, bandwidth, budget.link_bytes_s)


def paged_read_bytes(plan: Plan, batch: int = 1) -> int:
    """Bytes that a step of `batch` sequences reads from storage."""
    if plan.paging is None:
        return 0
    routed = plan.paging.token_bytes - plan.paging.streamed_bytes
    model = plan.model
    if batch > 1 and routed and model.n_experts_used:
        routed = int(routed * distinct_experts(model.n_experts, model.n_experts_used, batch) / model.n_experts_used)
    return plan.paging.streamed_bytes + routed


def speed_of(plan: Plan, measured: MeasuredSpeed | None = None) -> Speed:
    """Bound and expectation for a plan. `measured` belongs to the machine that the plan is for, or is None."""
    if plan.unknown:
        return Speed(None, None, None, None, f"unknown: {plan.unknown}")
    ask = plan.ask
    kv_bytes = kv_read_bytes(plan, ask.ctx) * ask.requests
    read = (weight_read_bytes(plan.model, ask.requests) + kv_bytes) // ask.requests
    step = step_bound_s(plan, kv_bytes, ask.requests)
    prefill = prefill_bound_s(plan, ask.prompt or ask.ctx)
    bound = 1 / step if step else None
    expected, basis = _expected(plan, bound, measured)
    return Speed(read, bound, expected, prefill, basis)


def _expected(plan: Plan, bound: float | None, measured: MeasuredSpeed | None) -> tuple[float | None, str]:
    if plan.paging is not None:
        return _expected_paged(plan, bound)
    weight_type = plan.model.weight_type
    if measured and _tells_more(measured, weight_type) and plan.ask.requests == 1:
        return _expected_by_answers(plan, bound, measured.answers)
    source = f"bandwidth {plan.budget.bandwidth_bytes_s / 1e9:.4g} GB/s" if plan.budget.bandwidth_bytes_s else ""
    if bound is None:
        return None, "no bound: this device's memory bandwidth is not known; `localinfer doctor` measures it"
    share = measured.share_for(weight_type) if measured else None
    if share is None:
        return None, f"bound only ({source}): no decoding was measured on this device, `localinfer bench` does"
    part, measured_type = share
    when = f" on {measured.when}" if measured and measured.when else ""
    return bound * part, f"{part:.0%} of {source}, as bench measured with {measured_type} weights{when}"


def _tells_more(measured: MeasuredSpeed, weight_type: str) -> bool:
    """Do earlier answers say more of this type than `bench` does?"""
    return weight_type not in measured.mbu and (
        weight_type in measured.answers or bool(measured.answers and not measured.mbu)
    )


def _expected_by_answers(plan: Plan, bound: float | None, answers: Mapping[str, float]) -> tuple[float, str]:
    """By the bytes a second of earlier answers: with this type of weights, else the slowest."""
    weight_type = plan.model.weight_type
    if weight_type not in answers:
        weight_type = min(answers, key=lambda t: answers[t])
    rate = answers[weight_type] / (weight_read_bytes(plan.model) + kv_read_bytes(plan, plan.ask.ctx))
    text = f"as answers here were decoded: {answers[weight_type] / 1e9:.3g} GB/s of {weight_type} weights"
    return min(rate, bound or rate), text


PAGED_SHARE = 0.85  # of the bound that decoding from storage reaches: reads and computing overlap, not perfectly


def _expected_paged(plan: Plan, bound: float | None) -> tuple[float | None, str]:
    """Storage decides: "pages: 10.4 GB per token over 5.1 GB/s, at most 0.49 tok/s"."""
    stored = f"{paged_read_bytes(plan) / 1e9:.3g} GB"
    if bound is None or not plan.budget.link_bytes_s:
        return None, f"pages: {stored} per token; the speed of the disk is not known, `localinfer doctor` measures it"
    text = f"pages: {stored} per token over {plan.budget.link_bytes_s / 1e9:.2g} GB/s, at most {bound:.2g} tok/s"
    if not rules_for(plan.budget.platform, plan.model.mapped).copies_ahead:
        text += ", copies and computing taking turns"
    if plan.paging and plan.paging.cached:
        text += " if experts are chosen evenly; favourites make it faster"
    return bound * PAGED_SHARE, text
