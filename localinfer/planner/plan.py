"""Does it fit? `make_plan` adds up every byte a model needs and compares the sum with a budget. Pure, integers only.

    weights + KV + scratch + logits + drafting + paging buffers + runtime <= budget

Every term is a Row, the total is their sum. A plan never guesses: what is unknown is named, and then the verdict is
"unknown" unless what is known does not fit already.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Literal

from localinfer.errors import UnsupportedModel
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig
from localinfer.planner.budget import MemoryBudget
from localinfer.planner.context_limit import KVGroup, group_layers, kv_bytes_at, largest_context
from localinfer.planner.facts import ModelFacts
from localinfer.planner.paging import Paging, make_paging
from localinfer.planner.platforms import DECODE_TILES, PlatformRules, rules_for
from localinfer.planner.scratch import Scratch, scratch_for
from localinfer.planner.weights import weight_groups
from localinfer.records import dataclass, field, replace
from localinfer.units import MIB, format_bytes

Verdict = Literal["fits", "tight", "pages", "does_not_fit", "unknown"]
KV_CHOICES = (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0"))
DEFAULT_CHUNK = 512
AUTO_CHECKPOINTS = -1  # as many as a quarter of the KV bytes pays for, 4 to 32; none where the plan then does not fit
TIGHT_SHARE = 0.03  # a plan that leaves less of the budget than this is called tight

# The rows of the sum, in the order they are shown.
PARTS = ("weights", "kv", "scratch", "logits", "draft", "paging_buffers", "runtime")


@dataclass(frozen=True)
class Ask:
    """What the user wants of the model. Token counts; `kv_budget` and `weight_budget` in bytes."""

    ctx: int  # tokens of context for each request
    kv_k: str = "f16"
    kv_v: str = "f16"
    chunk: int = DEFAULT_CHUNK  # tokens a prefill step
    threads: int = 4
    draft: int = 0  # guessed tokens a round
    draft_token_bytes: int = 0  # of the drafter's index, for each token of context
    prompt: int = 0  # 0: ctx
    output: int = 0
    requests: int = 1
    shared_prefix: int = 0
    snapshots_bytes: int = 0  # KV snapshots kept in memory beside the live cache
    weight_budget: int | None = None  # weights beyond this are paged; buffers come on top
    checkpoints: int = 0  # lengths that windowed and recurrent layers can go back to; AUTO_CHECKPOINTS: see there

    @property
    def kv_name(self) -> str:
        """`q8_0` or `q8_0/q4_0`."""
        return kv_name(self.kv_k, self.kv_v)


def kv_name(k: str, v: str) -> str:
    """`q8_0` where both are the same, else `q8_0/q4_0`."""
    return k if k == v else f"{k}/{v}"


@dataclass(frozen=True)
class Row:
    """One term of the sum. `part` is one of PARTS, `name` what it is for people."""

    part: str
    name: str
    n_bytes: int
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """Rows against a budget. `unknown` is empty, or why KV and scratch could not be counted."""

    model: ModelFacts
    budget: MemoryBudget
    ask: Ask
    rows: tuple[Row, ...]
    kv: KVSpec | None
    scratch: Scratch | None = None
    unknown: str = ""
    max_ctx: Mapping[str, int] = field(default_factory=dict)  # by KV types: the largest context that fits
    paging: Paging | None = None  # what stays and what is read again; None: all weights stay

    @cached_property
    def parts(self) -> dict[str, int]:
        """Bytes of each of PARTS."""
        return {part: sum(r.n_bytes for r in self.rows if r.part == part) for part in PARTS}

    @property
    def checkpoint_bytes(self) -> int:
        """Part of `paging_buffers`: what windowed and recurrent layers need to go back."""
        return sum(r.n_bytes for r in self.rows if r.name == CHECKPOINTS)

    @property
    def total(self) -> int:
        return sum(row.n_bytes for row in self.rows)

    @property
    def left(self) -> int:
        return self.budget.budget_bytes - self.total

    @property
    def kv_room(self) -> int:
        """What the budget leaves for KV once everything else is counted."""
        return self.left + self.parts["kv"]

    @property
    def short_now(self) -> int:
        """Bytes that other programs hold and the plan needs; 0 where all of it is free, or nobody asked."""
        if self.budget.free_bytes is None:
            return 0
        return max(0, self.total - self.budget.free_bytes)

    @property
    def verdict(self) -> Verdict:
        if self.left < 0:
            return "does_not_fit"
        if self.unknown:
            return "unknown"
        if self.paging is not None:
            return "pages"
        return "tight" if self.short_now or self.left < TIGHT_SHARE * self.budget.budget_bytes else "fits"

    @property
    def fits(self) -> bool:
        return self.verdict in ("fits", "tight", "pages")

    @property
    def binding(self) -> str:
        """The term at which the sum crosses the budget, or what would stop a larger context first."""
        room = self.budget.budget_bytes
        if self.paging is not None:  # why weights are paged
            room -= self.model.tensor_bytes - self.parts["weights"]
        for part in PARTS:
            room -= self.parts[part]
            if room < 0:
                return part
        if self.unknown:
            return "unknown"
        if self.short_now:
            return "free_memory"
        trained = self.model.n_ctx_train
        return "trained_context" if trained and self.max_ctx.get(self.ask.kv_name, 0) >= trained else "kv"

    @property
    def baseline_bytes(self) -> int:
        """The term that no formula gives: what the ledger corrects."""
        return sum(row.n_bytes for row in self.rows if row.name == BASELINE)

    @property
    def cache_bytes(self) -> int:
        """Freed buffers that the GPU library keeps: memory that is taken, and no part of what it calls its peak."""
        return sum(row.n_bytes for row in self.rows if row.name == CACHE)

    @property
    def anonymous_bytes(self) -> int:
        """What the process allocates itself: all but weights that stay in mapped files."""
        mapped = self.model.mapped and self.budget.platform != "cuda" and self.paging is None
        return self.total - (self.parts["weights"] if mapped else 0)


def make_plan(model: ModelFacts, budget: MemoryBudget, ask: Ask, runtime_bytes: int | None = None) -> Plan:
    """Add up what `model` needs for `ask`. `runtime_bytes` replaces the platform's guess by a measured baseline."""
    ask = replace(ask, kv_k=model.kv_type or ask.kv_k, kv_v=model.kv_type or ask.kv_v)
    if ask.checkpoints == AUTO_CHECKPOINTS:
        wanted = replace(ask, checkpoints=_worthwhile_checkpoints(model, budget, ask))
        plan = make_plan(model, budget, wanted, runtime_bytes)
        if plan.fits or not wanted.checkpoints:
            return plan
        ask = replace(ask, checkpoints=0)
    rules = rules_for(budget.platform, model.mapped)
    runtime = _runtime_rows(model, budget, rules, runtime_bytes)
    if model.config is None:
        return Plan(model, budget, ask, (*_weight_rows(model, None), *runtime), None, None, model.unknown)
    spec = _spec(model.config, ask, rules)
    try:
        scratch = scratch_for(model, ask.chunk, ask.threads, rules)
        paging = paging_for(model, ask.weight_budget)
    except UnsupportedModel as error:  # a config that we read, of a decoder that we lack
        return Plan(model, budget, ask, (*_weight_rows(model, None), *runtime), None, None, error.message)
    buffer_bytes = paging.buffer_bytes if paging else 0
    fixed = (
        *_weight_rows(model, paging),
        Row("logits", "logits", (ask.draft + 1) * model.config.n_vocab * 4),
        Row("paging_buffers", PAGING, buffer_bytes + ask.snapshots_bytes),
        *runtime,
    )
    plan = _at_context(Plan(model, budget, ask, fixed, spec, scratch, paging=paging), ask)
    return replace(plan, max_ctx=_max_contexts(plan, rules, scratch, _room(plan)))


def kv_choices(model: ModelFacts) -> tuple[tuple[str, str], ...]:
    """KV types to choose from, the most exact first."""
    return ((model.kv_type, model.kv_type),) if model.kv_type else KV_CHOICES


def with_kv(plan: Plan, k: str, v: str) -> Plan:
    """The same plan with other KV types."""
    return _at_context(plan, replace(plan.ask, kv_k=k, kv_v=v))


def with_ctx(plan: Plan, ctx: int) -> Plan:
    """The same plan with another context."""
    return _at_context(plan, replace(plan.ask, ctx=ctx))


def with_chunk(plan: Plan, chunk: int) -> Plan:
    """The same plan with prompts that go through in other chunks."""
    rules = rules_for(plan.budget.platform, plan.model.mapped)
    scratch = scratch_for(plan.model, chunk, plan.ask.threads, rules)
    return _at_context(replace(plan, scratch=scratch), replace(plan.ask, chunk=chunk))


def with_weight_budget(plan: Plan, n_bytes: int | None) -> Plan:
    """The same plan with so much memory for weights."""
    paging = paging_for(plan.model, n_bytes)
    buffers = (paging.buffer_bytes if paging else 0) + plan.ask.snapshots_bytes
    rows = [r for r in plan.rows if r.part != "weights" and r.name != PAGING]
    rows += [*_weight_rows(plan.model, paging), Row("paging_buffers", PAGING, buffers)]
    ask = replace(plan.ask, weight_budget=n_bytes)
    paged = replace(plan, ask=ask, rows=_ordered(tuple(rows)), paging=paging)
    if plan.scratch is None:
        return paged
    return replace(
        paged,
        max_ctx=_max_contexts(paged, rules_for(plan.budget.platform, plan.model.mapped), plan.scratch, _room(paged)),
    )


def contexts_down_to(plan: Plan, least_weights: int) -> dict[str, int]:
    """The largest contexts, by KV types, where weights give way down to so many bytes (or what cannot be paged)."""
    smallest = with_weight_budget(plan, least_weights)
    assert smallest.scratch is not None
    unspent = max(0, least_weights - smallest.parts["weights"]) + MIB  # budgets are whole MiB
    rules = rules_for(plan.budget.platform, plan.model.mapped)
    return _max_contexts(smallest, rules, smallest.scratch, _room(smallest) - unspent)


def _room(plan: Plan) -> int:
    """What the budget leaves for all that grows with the context."""
    fixed = sum(r.n_bytes for r in plan.rows if r.name != ATTENTION and r.part not in GROWING)
    return plan.budget.budget_bytes - fixed


def _at_context(plan: Plan, ask: Ask) -> Plan:
    """What depends on context and KV types, for others; the other rows are kept."""
    assert plan.model.config is not None and plan.scratch is not None
    rules = rules_for(plan.budget.platform, plan.model.mapped)
    spec = _spec(plan.model.config, ask, rules)
    kept = [r for r in plan.rows if r.part not in ("kv", "scratch", "draft") and r.name != CHECKPOINTS]
    index = Row("draft", "drafting index", ask.draft_token_bytes * ask.ctx)
    going_back = Row("paging_buffers", CHECKPOINTS, spec.checkpoint_bytes, f"{ask.checkpoints} lengths to go back to")
    rows = (*kept, *_kv_rows(spec, ask), *_scratch_rows(plan.model, ask, plan.scratch, rules), index, going_back)
    rows = tuple(row for row in rows if row.name != CHECKPOINTS or row.n_bytes)
    return replace(plan, ask=ask, rows=_ordered(rows), kv=spec)


def _spec(config: ModelConfig, ask: Ask, rules: PlatformRules) -> KVSpec:
    return KVSpec.from_config(config, ask.ctx, ask.kv_k, ask.kv_v, ask.chunk, rules.v_beside_k, max(0, ask.checkpoints))


def _worthwhile_checkpoints(model: ModelFacts, budget: MemoryBudget, ask: Ask) -> int:
    if model.config is None or not model.mapped:
        return 0
    one = _spec(model.config, replace(ask, checkpoints=1), rules_for(budget.platform, model.mapped))
    return min(32, max(4, one.n_bytes // 4 // one.checkpoint_bytes)) if one.checkpoint_bytes else 0


CHECKPOINTS = "KV checkpoints"
BASELINE = "interpreter, libraries"
CACHE = "MLX's cache of freed buffers"
ATTENTION = "attention scratch"
PAGING = "weight paging, KV snapshots"
GROWING = ("kv", "draft")  # parts that are proportional to context, but for rings


def _runtime_rows(
    model: ModelFacts, budget: MemoryBudget, rules: PlatformRules, learned: int | None
) -> tuple[Row, ...]:
    """What the process holds without a model; what its library keeps; the tokenizer, which no card's memory holds."""
    if learned is None:
        base = Row("runtime", BASELINE, rules.runtime_bytes, "a first guess: the first load here corrects it")
    else:
        base = Row("runtime", BASELINE, learned, "as loads here measured it")
    cache = Row("runtime", CACHE, rules.cache_limit(budget.usable_bytes), "the limit that the backend sets")
    tokenizer = Row("runtime", "tokenizer", model.tokenizer_bytes)
    rows = (base, *((cache,) if cache.n_bytes else ()))
    return rows if budget.platform == "cuda" else (*rows, tokenizer)


def paging_for(model: ModelFacts, weight_budget: int | None) -> Paging | None:
    """What stays within weight_budget bytes; None where all of the weights do."""
    if weight_budget is None or weight_budget >= model.tensor_bytes:
        return None
    if model.config is None or not model.mapped:
        return None
    return make_paging(model, weight_budget)


def _weight_rows(model: ModelFacts, paging: Paging | None) -> tuple[Row, ...]:
    if paging is None:
        return tuple(Row("weights", name, n) for name, n in weight_groups(model.tensors).items())
    rows = (
        Row("weights", "resident weights", paging.resident_bytes, f"of {format_bytes(model.tensor_bytes)}"),
        Row("weights", "resident experts", paging.expert_bytes, f"of {format_bytes(paging.all_expert_bytes)}"),
    )
    return tuple(row for row in rows if row.n_bytes)


def _scratch_rows(model: ModelFacts, ask: Ask, scratch: Scratch, rules: PlatformRules) -> tuple[Row, ...]:
    rows = [
        Row("scratch", f"activations of {ask.chunk} tokens", scratch.activations),
        Row("scratch", "prepared activations", scratch.prepared),
        Row("scratch", "chosen experts", scratch.experts),
        Row("scratch", ATTENTION, scratch.attention(ask.ctx)),
        Row("scratch", "decoded weights", *_decoded(model, rules)),
        Row("scratch", "decoded tiles", *_decode_tiles(model, rules)),
    ]
    return tuple(row for row in rows if row.n_bytes)


def _decoded(model: ModelFacts, rules: PlatformRules) -> tuple[int, str]:
    """Bytes of decoded matrices, and why they are."""
    if rules.decoded_value_bytes or not rules.block_types:
        return model.params * rules.decoded_value_bytes, "this backend decodes all matrices"
    others = [t for t in model.tensors.values() if len(t.shape) > 1 and t.type.name not in rules.block_types]
    names = ", ".join(sorted({t.type.name for t in others}))
    return sum(2 * prod(t.shape) for t in others), f"no kernel here for {names}"


def _decode_tiles(model: ModelFacts, rules: PlatformRules) -> tuple[int, str]:
    """Bytes of the tiles in which a prompt's products decode matrices, and the basis."""
    matrices = (t for t in model.tensors.values() if len(t.shape) > 1 and t.type.block_values > 1)
    largest = max((2 * prod(t.shape[-2:]) for t in matrices), default=0)
    return DECODE_TILES * min(largest, rules.decode_tile_bytes), f"{DECODE_TILES} at once: derived, not measured"


def _kv_rows(spec: KVSpec, ask: Ask) -> tuple[Row, ...]:
    """One row for each kind of layer; further requests share whole pages of the common prefix in full layers."""
    rows = []
    for group in group_layers(spec):
        n_bytes = group.n_bytes * ask.requests
        if not group.ring:
            shared_pages = min(ask.shared_prefix // group.page_tokens, group.n_pages)
            n_bytes -= (ask.requests - 1) * shared_pages * group.page_bytes
        rows.append(Row("kv", f"{group.count} {group.label}", n_bytes, f"{group.n_tokens} tokens"))
    return tuple(rows)


def _ordered(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda r: PARTS.index(r.part)))


def _max_contexts(plan: Plan, rules: PlatformRules, scratch: Scratch, room: int) -> dict[str, int]:
    """The largest context that fits for each request, none shared, by kv_choices and the types asked for."""
    assert plan.model.config is not None
    ask, sizes = plan.ask, {}

    def beside(n_ctx: int) -> int:
        return scratch.attention(n_ctx) + ask.draft_token_bytes * n_ctx

    for k, v in dict.fromkeys((*kv_choices(plan.model), (ask.kv_k, ask.kv_v))):
        groups = group_layers(_spec(plan.model.config, replace(ask, kv_k=k, kv_v=v), rules))
        sizes[kv_name(k, v)] = largest_context(groups, ask.chunk, beside, room, ask.requests)
    return sizes


__all__ = [
    "AUTO_CHECKPOINTS",
    "DEFAULT_CHUNK",
    "KV_CHOICES",
    "PARTS",
    "Ask",
    "KVGroup",
    "Plan",
    "Row",
    "Verdict",
    "contexts_down_to",
    "kv_bytes_at",
    "kv_choices",
    "kv_name",
    "make_plan",
    "with_ctx",
    "with_kv",
    "with_weight_budget",
]
