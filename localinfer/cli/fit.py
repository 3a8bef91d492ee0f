"""`localinfer fit MODEL`: will it fit, what binds, what to change, how fast at best. Loads nothing.

Exit 0 it fits, 3 it does not, 5 the architecture is unknown (weights are counted all the same). This command must
answer at once, so it imports no array library, no backend, and rich only where a table is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from localinfer.cli.open_anywhere import open_anywhere
from localinfer.device import THIS, machine_name, measured_speed, this_budget, usable_cores
from localinfer.engine.backend_choice import backend_for
from localinfer.engine.ngram_index import BYTES_PER_TOKEN
from localinfer.engine.params import BACKENDS, DEFAULT_CTX, MAX_DRAFT, parse_draft
from localinfer.engine.planning import paged_if_needed
from localinfer.errors import DoesNotFit, UnsupportedModel, UsageError
from localinfer.kv.spec import parse_kv_types
from localinfer.kv_cost import with_known_kv_cost
from localinfer.planner.budget import MemoryBudget
from localinfer.planner.devices import DEVICES, find_device
from localinfer.planner.draft_forecast import DraftForecast, draft_forecast
from localinfer.planner.facts import NOT_PAGED, ModelFacts
from localinfer.planner.ladder import Repair, repairs
from localinfer.planner.ledger import learned_runtime_bytes
from localinfer.planner.plan import AUTO_CHECKPOINTS, Ask, Plan, make_plan
from localinfer.planner.report import layers_json, plan_json, plan_notes, scenario_json
from localinfer.planner.speed import Speed, speed_of
from localinfer.records import dataclass, replace
from localinfer.units import parse_bytes, parse_tokens

if TYPE_CHECKING:
    from localinfer.formats.model_file import ModelFile
    from localinfer.planner.scenario import Outcome

HELP = "will a model fit, what binds, what to change, how fast at best"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("fit", help=HELP, description=f"{HELP[0].upper()}{HELP[1:]}. Nothing is loaded.")
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a .gguf file (any shard), a local name, or hf:OWNER/REPO"
    )
    parser.add_argument(
        "--ctx", metavar="N", help="tokens of context: 32768, 32k, 1M or max (default: 4k, or prompt and output)"
    )
    parser.add_argument(
        "--kv", metavar="TYPE", default="f16", help="KV cache: f16, q8_0, q4_0, f32 or KTYPE/VTYPE (default: f16)"
    )
    parser.add_argument("--device", metavar="NAME", help=f"{THIS}, or a machine of --list-devices (default: {THIS})")
    parser.add_argument("--list-devices", action="store_true", help="print the known machines and their figures")
    parser.add_argument("--memory", metavar="SIZE", help="plan for this much memory: 64GiB, 96GB")
    parser.add_argument("--reserve", metavar="SIZE", help="keep this much for the system (default: by device)")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="on this machine (default: auto)")
    parser.add_argument("--threads", metavar="N", help="threads of the cpu backend (default: all cores)")
    parser.add_argument(
        "--draft", metavar="N", default="auto", help="auto, off, or draft tokens a round (default: auto)"
    )
    parser.add_argument(
        "--weight-budget", metavar="SIZE", help="keep this much of the weights in memory, page the rest"
    )
    scenario = parser.add_argument_group("several requests")
    scenario.add_argument("--prompt", metavar="N", help="prompt tokens of each request")
    scenario.add_argument("--output", metavar="N", help="output tokens of each request")
    scenario.add_argument("--requests", metavar="N", help="how many at the same time")
    scenario.add_argument("--shared-prefix", metavar="N", help="prompt tokens that all of them share")
    scenario.add_argument("--deadline", metavar="S", help="seconds for all of them")
    scenario.add_argument("--kv-budget", metavar="SIZE", help="memory for KV (default: what the rest leaves)")
    parser.add_argument("--layers", action="store_true", help="one line a layer")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


@dataclass(frozen=True)
class Answer:
    """All that is printed."""

    plan: Plan
    speed: Speed
    drafting: DraftForecast | None
    repairs: list[Repair]
    notes: list[str]
    outcomes: list[Outcome]  # of a scenario: the asked one comes first where no prefix is shared, else second
    kv_budget: int
    deadline_s: float | None

    @property
    def asked(self) -> Outcome | None:
        """The scenario as the user described it."""
        shared = self.plan.ask.shared_prefix > 0
        return next((o for o in self.outcomes if o.shared == shared), None)


def run(args: argparse.Namespace) -> int:
    """Print the answer; returns the exit code. Raises the error tree."""
    if args.list_devices:
        return _list_devices(args.json)
    if not args.model:
        raise UsageError("fit: expected a MODEL", "for example: localinfer fit model.gguf --ctx 32k")
    if args.model.startswith("hf:"):
        from localinfer.cli.fit_remote import compare

        if (code := compare(args)) is not None:
            return code
    answer = answer_for(args)
    if args.json:
        print(json.dumps(_as_json(answer, args.layers), indent=1))
    else:
        from localinfer.cli.fit_table import print_answer

        print_answer(answer, args.layers)
    return exit_code(answer)


def exit_code(answer: Answer) -> int:
    """0 fits, 3 does not (or the scenario is not feasible), 5 unknown architecture."""
    plan, asked = answer.plan, answer.asked
    if plan.verdict == "unknown":
        return UnsupportedModel.exit_code
    if not plan.fits or (asked is not None and not asked.judgement.feasible):
        return DoesNotFit.exit_code
    return 0


def answer_for(args: argparse.Namespace) -> Answer:
    """Read the header, make the plan. The file is closed again before this returns."""
    with open_anywhere(args.model) as f:
        return answer_of(args, f)


def answer_of(args: argparse.Namespace, f: ModelFile) -> Answer:
    """The answer for a model file that is open."""
    model = with_known_kv_cost(ModelFacts.from_file(f), f)
    args.backend = backend_for(f, args.backend)
    budget = _budget(args)
    ask = _ask(args, model)
    here = budget.name == THIS
    runtime = learned_runtime_bytes(machine_name(), budget.platform) if here else None
    plan = make_plan(model, budget, ask, runtime)
    if here and args.memory is None:
        plan = paged_if_needed(plan, f.path)
    deadline = _seconds(args.deadline)
    kv_budget = parse_bytes(args.kv_budget, "kv-budget") if args.kv_budget is not None else plan.kv_room
    outcomes = _outcomes(plan, kv_budget, deadline)
    measured = measured_speed(budget.platform) if here else None
    speed, drafting = speed_of(plan, measured), draft_forecast(plan, measured)
    return Answer(plan, speed, drafting, repairs(plan), plan_notes(plan), outcomes, kv_budget, deadline)


def _budget(args: argparse.Namespace) -> MemoryBudget:
    """--device, --memory and --reserve. A --memory of its own is the budget: nothing is kept back unless asked."""
    reserve = parse_bytes(args.reserve, "reserve") if args.reserve is not None else None
    memory = parse_bytes(args.memory, "memory") if args.memory is not None else None
    if args.device is not None and args.device != THIS:
        budget = find_device(args.device).budget(reserve, memory)
    elif memory is not None and args.device is None:
        platform = "mlx-cpu" if args.backend == "mlx" and sys.platform != "darwin" else "cpu"
        budget = MemoryBudget("custom", platform, memory, memory, reserve or 0, "--memory")  # type: ignore[arg-type]
    else:
        budget = this_budget(args.backend, reserve)
        if memory is not None:
            budget = replace(budget, memory_bytes=memory, usable_bytes=memory, free_bytes=None)
    if budget.budget_bytes <= 0:
        raise UsageError(f"reserve: {budget.reserve_bytes} bytes are all of the device's {budget.memory_bytes}")
    return budget


def _ask(args: argparse.Namespace, model: ModelFacts) -> Ask:
    k, v = model.kv_types(*parse_kv_types(args.kv))
    longest = model.n_ctx_train or None
    if args.weight_budget is not None and not model.mapped:
        raise UsageError(NOT_PAGED, "use a .gguf file")
    prompt, output = (_count(getattr(args, name), name, 0) for name in ("prompt", "output"))
    shared = _count(args.shared_prefix, "shared-prefix", 0)
    requests = _count(args.requests, "requests", 1)
    if shared > prompt:
        raise UsageError(f"shared-prefix: expected at most the prompt's {prompt} tokens, found {shared}")
    if (requests > 1 or shared or args.deadline is not None) and not (prompt and output):
        raise UsageError("requests: expected --prompt and --output with --requests, --shared-prefix or --deadline")
    if args.ctx is not None:
        ctx = parse_tokens(args.ctx, "ctx", longest)
        if prompt and ctx < prompt + max(output, 1) - 1:
            raise UsageError(f"ctx: expected room for {prompt} prompt and {output} output tokens, found {ctx}")
    else:
        ctx = _request_tokens(prompt, output) if prompt else min(DEFAULT_CTX, longest or DEFAULT_CTX)
    draft = {"auto": MAX_DRAFT, "off": 0}.get(str(parse_draft(args.draft)), args.draft)
    return Ask(
        ctx=ctx, kv_k=k, kv_v=v, chunk=min(Ask.chunk, ctx),
        threads=_count(args.threads, "threads", usable_cores()), draft=int(draft),
        draft_token_bytes=BYTES_PER_TOKEN if draft else 0,
        prompt=prompt, output=output, requests=requests, shared_prefix=shared,
        weight_budget=parse_bytes(args.weight_budget, "weight-budget") if args.weight_budget is not None else None,
        checkpoints=AUTO_CHECKPOINTS if requests == 1 and not prompt else 0,
    )  # fmt: skip


def _request_tokens(prompt: int, output: int) -> int:
    """Context of one request, in whole pages."""
    from localinfer.planner.kv_cost import reserve_tokens

    return reserve_tokens(prompt, max(output, 1))


def _count(text: str | None, name: str, default: int) -> int:
    return default if text is None else parse_tokens(text, name)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"deadline: expected seconds such as 7 or 0.5, found {text!r}")
    return seconds


def _outcomes(plan: Plan, kv_budget: int, deadline_s: float | None) -> list[Outcome]:
    """Configurations of a scenario; none where no scenario was asked for or the KV is unknown."""
    ask = plan.ask
    if plan.unknown or not ask.prompt or not ask.output:
        return []
    from localinfer.planner.capacity import RequestShape
    from localinfer.planner.scenario import compare

    shape = RequestShape(ask.prompt, ask.output, ask.shared_prefix)
    return compare(plan, shape, ask.requests, kv_budget, deadline_s)


def _as_json(answer: Answer, layers: bool) -> dict[str, object]:
    content = plan_json(answer.plan, answer.speed, answer.repairs, answer.notes, answer.drafting)
    if answer.outcomes:
        content["scenario"] = scenario_json(answer.outcomes, answer.kv_budget, answer.deadline_s)
    if layers:
        content["layers"] = layers_json(answer.plan)
    return content


def _list_devices(as_json: bool) -> int:
    if as_json:
        fields = ("name", "label", "platform", "memory_bytes", "bandwidth", "flops", "source")
        print(json.dumps([{f: getattr(d, f) for f in fields} for d in DEVICES.values()], indent=1))
        return 0
    for d in DEVICES.values():
        flops = f"{d.flops / 1e12:7.1f} TFLOP/s" if d.flops else ""
        print(f"{d.name:16} {d.label:34} {d.bandwidth / 1e9:7.1f} GB/s {flops}".rstrip())
    return 0
