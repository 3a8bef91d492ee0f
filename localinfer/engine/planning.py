"""The planner's answer for what is about to be loaded on this machine, and what became of it (the honesty ledger)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from localinfer.device import machine_name, process_memory, this_budget, usable_cores
from localinfer.engine.backend_choice import backend_for
from localinfer.engine.ngram_index import BYTES_PER_TOKEN
from localinfer.engine.params import DEFAULT_CTX, MAX_DRAFT, EngineOptions
from localinfer.errors import DoesNotFit, TooSlow, UsageError
from localinfer.formats.model_file import open_model_file
from localinfer.kv.spec import parse_kv_types
from localinfer.kv_cost import with_known_kv_cost
from localinfer.planner.facts import NOT_PAGED, ModelFacts
from localinfer.planner.ladder import page_to_fit, repairs, with_paged_chunk
from localinfer.planner.ledger import Measured, Used, learned_runtime_bytes, record
from localinfer.planner.plan import AUTO_CHECKPOINTS, Ask, Plan, make_plan
from localinfer.planner.speed import kv_read_bytes, speed_of, step_bound_s, weight_read_bytes
from localinfer.records import replace
from localinfer.units import format_bytes_both

if TYPE_CHECKING:
    from pathlib import Path

    from localinfer.formats.gguf import TensorInfo
    from localinfer.formats.model_file import ModelFile

LEAST_STEPS = 16  # plain decode steps of a turn that say how fast this machine decodes
PAGES = ("cpu",)  # platforms whose backend pages weights


def context_length(file: ModelFile, options: EngineOptions) -> int:
    """Tokens of context: as asked, else DEFAULT_CTX or what the model was trained on, whichever is less."""
    if options.ctx:
        return options.ctx
    arch = file.metadata.get_str("general.architecture", "")
    trained = file.metadata.get_int(f"{arch}.context_length", 0)
    return min(DEFAULT_CTX, trained) if trained > 0 else DEFAULT_CTX


def plan_for(path: str, options: EngineOptions) -> Plan:
    """The plan for a file that is not open. FormatError, UsageError."""
    with open_model_file(path) as file:
        return plan_file(file, options)


def plan_file(file: ModelFile, options: EngineOptions) -> Plan:
    """What this file needs with these options, against this machine's memory."""
    n_ctx = context_length(file, options)
    model = with_known_kv_cost(ModelFacts.from_file(file, n_ctx), file)
    budget = this_budget(backend_for(file, options.backend))
    if options.weight_budget and not model.mapped:
        raise UsageError(NOT_PAGED, "use a .gguf file")
    k_type, v_type = model.kv_types(*parse_kv_types(options.kv))
    ask = Ask(
        ctx=n_ctx,
        kv_k=k_type,
        kv_v=v_type,
        chunk=min(options.chunk, n_ctx),
        threads=options.threads or usable_cores(),
        draft=MAX_DRAFT if options.drafts else 0,
        draft_token_bytes=BYTES_PER_TOKEN if options.drafts else 0,
        weight_budget=options.weight_budget,
        checkpoints=AUTO_CHECKPOINTS,
    )
    runtime = learned_runtime_bytes(machine_name(), budget.platform)
    return paged_if_needed(make_plan(model, budget, ask, runtime), file.path)


def paged_if_needed(plan: Plan, path: Path) -> Plan:
    """A plan for this machine that pages, where weights do not fit: with this disk's speed as its forecast."""
    asked = plan.ask.weight_budget is not None
    if plan.verdict == "does_not_fit" and not asked and plan.budget.platform in PAGES:
        plan = page_to_fit(plan) or plan
    if plan.paging is None:
        return plan
    if not plan.budget.link_bytes_s and path.exists():  # a model on the hub is on no disk yet
        from localinfer.storage import storage_speed

        disk = storage_speed(path)
        plan = replace(plan, budget=replace(plan.budget, link_bytes_s=disk.bytes_s)) if disk else plan
    return with_paged_chunk(plan, keep_budget=asked) if plan.budget.platform in PAGES else plan


def lowered_plan(plan: Plan, options: EngineOptions) -> Plan | None:
    """The plan within this machine's memory as it is limited now, where that is less than the plan needs."""
    if plan.budget.platform not in PAGES or options.force:
        return None
    budget = this_budget(options.backend)
    if plan.total <= budget.budget_bytes:
        return None
    link = budget.link_bytes_s or plan.budget.link_bytes_s
    return page_to_fit(replace(plan, budget=replace(budget, link_bytes_s=link)))


def check_speed(plan: Plan, least_tok_s: float) -> None:
    """TooSlow where paging cannot reach so many tokens a second."""
    step = step_bound_s(plan, 0) if plan.paging else None
    if step and 1 / step < least_tok_s:
        raise TooSlow(paging_line(plan), "a smaller model or quantization is faster", portable(plan))


def paging_line(plan: Plan) -> str:
    """ "pages: 10.4 GB per token over 5.1 GB/s, at most 0.49 tok/s"."""
    return speed_of(plan).basis


def check_fits(plan: Plan) -> None:
    """DoesNotFit with the plan and the first thing to change."""
    if plan.verdict != "does_not_fit":
        return
    budget = plan.budget.budget_bytes
    fix = next((r for r in repairs(plan) if r.verdict != "does_not_fit"), None)
    hint = f"{fix.option or fix.change} would do" if fix else "a smaller model or quantization is needed"
    raise DoesNotFit(
        f"needs {format_bytes_both(plan.total)} at a context of {plan.ask.ctx}, "
        f"{format_bytes_both(budget)} may be used: {plan.binding} is what does not fit",
        f"{hint}; --force loads it anyway",
        portable(plan),
    )


def portable(plan: Plan) -> Plan:
    """The plan without the tensor table, which looks into the open file: small enough to cross the engine's pipe."""
    none: Mapping[str, TensorInfo] = {}
    return replace(plan, model=replace(plan.model, tensors=none))


class MemoryRecord:
    """Follows what this process holds; the first full turn of a load goes to the ledger."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._anonymous = 0
        self._file = 0
        self._written = False

    def sample(self) -> None:
        now = process_memory()
        self._anonymous = max(self._anonymous, now.anonymous)
        self._file = max(self._file, now.file)

    def write(self, kv_bytes: int, scratch_bytes: int, used: Used, steps_s: Sequence[float] = ()) -> None:
        """Predicted against measured, once. steps_s: how long plain decode steps of the turn took. The ledger only
        informs: a full disk does not fail the turn."""
        self.sample()
        if self._written:
            return
        self._written = True
        measured = Measured(
            weights=self._plan.model.tensor_bytes,
            kv=kv_bytes,
            scratch=scratch_bytes,
            anonymous_peak=self._anonymous,
            file_peak=self._file,
            decode_bytes_s=self._decode_bytes_s(used.context, steps_s),
        )
        from datetime import datetime  # `fit` reads this file and writes nothing

        with suppress(OSError):
            record(self._plan, measured, machine_name(), datetime.now().isoformat(timespec="seconds"), used)

    def _decode_bytes_s(self, context: int, steps_s: Sequence[float]) -> int | None:
        """Bytes that a plain step reads, over the median of their times; None where too few tell."""
        if len(steps_s) < LEAST_STEPS:
            return None
        read = weight_read_bytes(self._plan.model) + kv_read_bytes(self._plan, context)
        return int(read / sorted(steps_s)[len(steps_s) // 2])
