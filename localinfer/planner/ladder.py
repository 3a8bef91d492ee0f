"""What to change when a model does not fit, in order of what the change costs.

KV type, context, a smaller quantization of the same model, closing other programs, raising macOS's GPU limit, paging
weights. Only changes that help are listed; each is a whole plan of its own, not an estimate on the side.
"""

from __future__ import annotations

from collections.abc import Iterator

from localinfer.planner.plan import (
    DEFAULT_CHUNK,
    PAGING,
    Plan,
    Verdict,
    contexts_down_to,
    kv_choices,
    kv_name,
    with_chunk,
    with_ctx,
    with_kv,
    with_weight_budget,
)
from localinfer.planner.speed import prefill_flops, step_bound_s
from localinfer.records import dataclass, replace
from localinfer.units import GIB, MIB, format_bytes

LEAST_RESIDENT_SHARE = 0.05  # of the weights: with less in memory, paging is no way to run a model
LEAST_CONTEXT = 512  # fewer tokens than this are no conversation
LEAST_SYSTEM_BYTES = 8 * GIB  # what macOS keeps when its GPU limit is raised, and at least a tenth of the memory

# Bits a weight that llama.cpp's quantization mixes come to on Llama-3.1-8B, scales included.
# https://github.com/ggml-org/llama.cpp/blob/master/tools/quantize/README.md
TYPICAL_BITS = {
    "Q8_0": 8.50, "Q6_K": 6.56, "Q5_K_M": 5.70, "Q4_K_M": 4.89, "IQ4_XS": 4.46, "Q3_K_M": 4.02, "IQ3_M": 3.76,
    "Q2_K": 3.16, "IQ2_M": 2.93, "IQ2_XS": 2.59, "IQ2_XXS": 2.38, "IQ1_M": 2.15,
}  # fmt: skip


@dataclass(frozen=True)
class Repair:
    """One change. `option` is what to type, empty where it is done elsewhere; `left` may be an estimate."""

    change: str
    verdict: Verdict
    left: int
    option: str = ""
    tok_s_bound: float | None = None  # forecast where the change costs speed
    estimated: bool = False


def repairs(plan: Plan) -> list[Repair]:
    """Changes that make a plan fit (or fit without closing programs), cheapest first. Empty where all is well."""
    if plan.unknown or plan.verdict == "fits":
        return []
    steps = (_smaller_kv, _less_context, _smaller_quant, _close_programs, _raise_limit, _page_weights)
    return [repair for step in steps for repair in step(plan)]


def _better(plan: Plan, other: Plan) -> bool:
    order = ("fits", "tight", "pages", "does_not_fit", "unknown")
    return order.index(other.verdict) < order.index(plan.verdict)


def _smaller_kv(plan: Plan) -> Iterator[Repair]:
    for k, v in kv_choices(plan.model):
        other = with_kv(plan, k, v)
        if other.parts["kv"] < plan.parts["kv"] and _better(plan, other):
            yield Repair(f"{kv_name(k, v)} KV cache", other.verdict, other.left, f"--kv {kv_name(k, v)}")


def _less_context(plan: Plan) -> Iterator[Repair]:
    """The largest context for the KV types asked for, and for smaller types where it is larger."""
    most = LEAST_CONTEXT - 1
    for name in dict.fromkeys((plan.ask.kv_name, *(kv_name(k, v) for k, v in kv_choices(plan.model)))):
        ctx = plan.max_ctx.get(name, 0)
        if most < ctx < plan.ask.ctx:
            k, _, v = name.partition("/")
            other = with_ctx(with_kv(plan, k, v or k), ctx)
            if not _better(plan, other):
                continue
            most = ctx
            option = f"--ctx {ctx}" + (f" --kv {name}" if name != plan.ask.kv_name else "")
            yield Repair(f"context of {ctx:,} tokens, {name} KV", other.verdict, other.left, option)


def _smaller_quant(plan: Plan) -> Iterator[Repair]:
    """The next smaller file of the same model that fits; its size is an estimate from typical bits a weight."""
    whole = plan.parts["weights"] if plan.paging is None else plan.model.tensor_bytes
    if plan.verdict not in ("does_not_fit", "pages") or plan.left + plan.parts["weights"] >= whole:
        return
    bits_now = plan.model.tensor_bytes * 8 / max(1, plan.model.params)
    for quant, bits in TYPICAL_BITS.items():
        size = int(plan.model.params * bits / 8)
        left = plan.left + plan.parts["weights"] - size
        if bits < 0.97 * bits_now and left >= 0:
            yield Repair(
                f"{'an' if quant[0] == 'I' else 'a'} {quant} file of the model, about {format_bytes(size)}",
                "fits",
                left,
                estimated=True,
            )
            return


def _close_programs(plan: Plan) -> Iterator[Repair]:
    if plan.left >= 0 and plan.short_now:
        yield Repair(f"close other programs: {format_bytes(plan.short_now)} are in use", "fits", plan.left)


def _raise_limit(plan: Plan) -> Iterator[Repair]:
    """macOS lets the GPU use a part of the memory; an administrator may raise that until the next start."""
    budget = plan.budget
    keep = max(LEAST_SYSTEM_BYTES, budget.memory_bytes // 10)
    if budget.platform != "metal" or plan.left >= 0 or plan.total > budget.memory_bytes - keep:
        return
    limit_mb = -(-plan.total // MIB)
    usable = max(limit_mb * MIB, budget.usable_bytes)
    raised = replace(plan, budget=replace(budget, usable_bytes=usable, reserve_bytes=keep))
    text = f"raise macOS's GPU limit: sudo sysctl iogpu.wired_limit_mb={limit_mb} (until the next start)"
    yield Repair(text, raised.verdict, raised.left, f"--reserve {format_bytes(keep).replace(' ', '')}")


def _page_weights(plan: Plan) -> Iterator[Repair]:
    """Keep what there is room for and read the rest again for every token."""
    paged = page_to_fit(plan) if plan.left < 0 and plan.ask.weight_budget is None else None
    if paged is None or paged.paging is None or paged.ask.weight_budget is None:
        return
    step = step_bound_s(paged, 0)
    forecast = f"at most {1 / step:.2g} tok/s" if step else "speed unknown until `localinfer doctor` measures the disk"
    text = (
        f"page weights: {format_bytes(paged.paging.kept_bytes)} stay in memory, "
        f"{format_bytes(paged.paging.token_bytes)} are read for each token, {forecast}"
    )
    option = f"--weight-budget {paged.ask.weight_budget // MIB}MiB"
    yield Repair(text, "pages", paged.left, option, 1 / step if step else None)


def page_to_fit(plan: Plan) -> Plan | None:
    """The same plan with the largest weight budget that fits; None where paging does not help. Its largest contexts are
    those at which paging still does: weights give way to a longer one."""
    if plan.unknown or not plan.model.tensors or not plan.model.mapped:
        return None
    beside = sum(row.n_bytes for row in plan.rows if row.part != "weights" and row.name != PAGING)
    keep, least = plan.budget.budget_bytes - beside, int(LEAST_RESIDENT_SHARE * plan.model.tensor_bytes)
    for _ in range(8):  # buffers depend a little on what is streamed
        keep = keep // MIB * MIB
        if keep < least:
            return None
        paged = with_weight_budget(plan, keep)
        if paged.left >= 0:
            return replace(paged, max_ctx=contexts_down_to(paged, least)) if paged.paging else None
        keep += paged.left
    return None


PAGED_CHUNKS = (2 * DEFAULT_CHUNK, 4 * DEFAULT_CHUNK)  # a cancel waits for the end of a chunk: no larger ones
USUAL_ANSWER = 256  # tokens
USUAL_FLOPS = 100e9  # of a core, where `bench` did not measure them: a Zen 3 core reaches 135e9 with 4-bit weights


def with_paged_chunk(plan: Plan, keep_budget: bool) -> Plan:
    """A paged plan with the chunk of prompt tokens that reads least in a turn that fills half of the context: larger
    chunks read the streamed weights less often, and their scratch leaves less memory for weights (keep_budget: it
    comes on top of the weight budget that was asked for). Only where reading takes longer than multiplying: else it
    is hidden behind that, and what stays in memory serves the answer better."""
    if plan.paging is None or plan.unknown or plan.ask.chunk != DEFAULT_CHUNK or not _reading_binds(plan):
        return plan
    best = plan
    for chunk in PAGED_CHUNKS:
        if chunk > plan.ask.ctx:
            break
        larger = with_chunk(plan, chunk)
        fitted = larger if keep_budget else page_to_fit(larger)
        if fitted is not None and fitted.left >= 0 and _turn_bytes(fitted) < _turn_bytes(best):
            best = fitted
    return best


def _pass_bytes(plan: Plan) -> int:
    """Read from storage for a chunk of a prompt, which needs every expert."""
    paging = plan.paging
    assert paging is not None
    return paging.streamed_bytes + max(0, paging.all_expert_bytes - paging.expert_bytes)


def _reading_binds(plan: Plan) -> bool:
    budget = plan.budget
    if not budget.link_bytes_s:
        return False
    flops = budget.flops or USUAL_FLOPS * plan.ask.threads
    return _pass_bytes(plan) / budget.link_bytes_s > prefill_flops(plan.model, plan.ask.chunk) / flops


def _turn_bytes(plan: Plan) -> int:
    """Read from storage for a prompt of half the context and a usual answer."""
    paging, ask = plan.paging, plan.ask
    assert paging is not None
    return -(-ask.ctx // 2 // ask.chunk) * _pass_bytes(plan) + min(USUAL_ANSWER, ask.ctx // 4) * paging.token_bytes
