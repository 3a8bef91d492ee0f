"""How `fit` looks in a terminal: a bar of the parts against the ceiling, a table of the rows, what to do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from localinfer.kv.spec import PAGE_TOKENS
from localinfer.planner.context_limit import group_layers
from localinfer.planner.plan import PARTS, Plan
from localinfer.planner.report import layers_json, weights_and_kv_alone
from localinfer.units import GB, GIB, format_bytes, format_bytes_both

if TYPE_CHECKING:
    from localinfer.cli.fit import Answer
    from localinfer.planner.draft_forecast import DraftForecast
    from localinfer.planner.scenario import Outcome
    from localinfer.planner.speed import Speed

BAR_WIDTH = 60
COLORS = {
    "weights": "blue", "kv": "green", "scratch": "yellow", "logits": "yellow", "draft": "magenta",
    "paging_buffers": "magenta", "runtime": "cyan",
}  # fmt: skip
LABELS = {"kv": "KV cache", "draft": "drafting", "paging_buffers": "paging, checkpoints"}
VERDICTS = {
    "fits": ("fits", "bold green"), "tight": ("fits, tightly", "bold yellow"),
    "pages": ("runs by paging", "bold yellow"),
    "does_not_fit": ("does not fit", "bold red"), "unknown": ("unknown", "bold yellow"),
}  # fmt: skip
BINDS = {
    "free_memory": "what other programs hold now", "trained_context": "the context it was trained on",
    "kv": "the KV cache (context)", "unknown": "unknown",
}  # fmt: skip


def print_answer(answer: Answer, layers: bool) -> None:
    """Everything to stdout, notes to stderr."""
    console = Console(highlight=False, soft_wrap=True)
    plan = answer.plan
    console.print(_title(plan))
    console.print(_bar(plan, console))
    console.print(_rows(plan))
    console.print(_verdict(plan))
    if plan.max_ctx:
        console.print(_contexts(plan))
    if layers:
        console.print(_layers(plan))
        for line in _rings(plan):
            console.print(line)
    _print_scenario(answer, console)
    if answer.repairs:
        console.print("what would help, cheapest first:")
    for repair in answer.repairs:
        console.print(f"  - {repair.change}: {VERDICTS[repair.verdict][0]}, {format_bytes(repair.left)} left", end="")
        console.print(f"  [dim]{repair.option}[/dim]" if repair.option else "")
    console.print(_speed(answer.speed))
    if answer.drafting:
        console.print(_drafting(answer.drafting))
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)


def _print_scenario(answer: Answer, console: Console) -> None:
    if not answer.outcomes:
        return
    from localinfer.planner.scenario import best

    chosen = best(answer.outcomes)
    for outcome in answer.outcomes:
        console.print(_outcome(outcome, outcome is chosen, answer.kv_budget))


def _title(plan: Plan) -> Text:
    m, b, a = plan.model, plan.budget, plan.ask
    here = f" ({b.source})" if b.free_bytes is not None else ""
    requests = f" x {a.requests} requests" if a.requests > 1 else ""
    return Text.assemble(
        (m.name, "bold"),
        f"  {m.arch}, {m.quant}, {m.params / 1e9:.2f} B parameters, {m.file_bytes / GB:.2f} GB file\n",
        f"on {b.name}{here}, context {a.ctx:,} tokens{requests}, {a.kv_name} KV",
    )  # fmt: skip


def _bar(plan: Plan, console: Console) -> Text:
    """Parts in proportion, up to the ceiling (or to the total where that is more)."""
    full, empty, end = ("█", "░", "▏") if console.encoding.startswith("utf") else ("#", ".", "|")
    budget = plan.budget.budget_bytes
    scale = BAR_WIDTH / max(budget, plan.total)
    bar, drawn, reached = Text(), 0, 0
    for part in PARTS:
        reached += plan.parts[part]
        width = round(reached * scale) - drawn
        bar.append(full * width, COLORS[part])
        drawn += width
    ceiling = round(budget * scale)
    bar.append(empty * max(0, ceiling - drawn), "dim")
    over = Text(f"{end} ceiling at {100 * budget / plan.total:.1f} % of the need", "red") if plan.left < 0 else end
    return bar + Text(" ") + over if isinstance(over, Text) else bar + Text(over)


def _rows(plan: Plan) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    for part in PARTS:
        rows = [r for r in plan.rows if r.part == part and r.n_bytes]
        if plan.unknown and part in ("kv", "scratch"):
            table.add_row(Text(LABELS.get(part, part), COLORS[part]), "unknown", "")
        if not rows:
            continue
        table.add_row(Text(LABELS.get(part, part), COLORS[part]), format_bytes(plan.parts[part]), "")
        for row in rows if len(rows) > 1 or part == "kv" else ():
            table.add_row(f"  {row.name}", format_bytes(row.n_bytes), row.note, style="dim")
    table.add_row("total", format_bytes_both(plan.total), "", style="bold")
    table.add_row("budget", format_bytes_both(plan.budget.budget_bytes), _budget_note(plan))
    table.add_row("left" if plan.left >= 0 else "missing", format_bytes_both(abs(plan.left)), "", style="bold")
    return table


def _budget_note(plan: Plan) -> str:
    b = plan.budget
    free = f", {format_bytes(b.free_bytes)} free now" if b.free_bytes is not None else ""
    return f"of {format_bytes(b.memory_bytes)}, {format_bytes(b.reserve_bytes)} kept for the system{free}"


def _verdict(plan: Plan) -> Text:
    text, style = VERDICTS[plan.verdict]
    alone = weights_and_kv_alone(plan)
    after = "" if alone["after_kv"] is None else f", {alone['after_kv'] / GIB:.2f} GiB after it"
    return Text.assemble(
        (text, style), f"; what binds: {BINDS.get(plan.binding, plan.binding)}\n",
        f"counting file and KV alone: {(alone['before_kv'] or 0) / GIB:.2f} GiB left before KV{after}",
    )  # fmt: skip


def _contexts(plan: Plan) -> str:
    sizes = ", ".join(f"{kv} {n:,}" for kv, n in plan.max_ctx.items())
    trained = f" (trained: {plan.model.n_ctx_train:,})" if plan.model.n_ctx_train else ""
    return f"largest context that fits: {sizes}{trained}"


def _layers(plan: Plan) -> Table:
    """One line a layer."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("layer", "weights", "kind", "KV heads", "K x V", "types", "tokens held", "KV"):
        table.add_column(name, justify="left" if name in ("kind", "types") else "right")
    for row in layers_json(plan):
        if "kind" not in row:
            table.add_row(str(row["layer"]), format_bytes(row["weights"]), "unknown")
            continue
        table.add_row(
            str(row["layer"]), format_bytes(row["weights"]), row["kind"], str(row["kv_heads"]),
            f"{row['d_k']} x {row['d_v']}", f"{row['k_type']}/{row['v_type']}", f"{row['tokens']:,}",
            format_bytes(row["kv"]),
        )  # fmt: skip
    return table


def _rings(plan: Plan) -> list[str]:
    """Why a sliding-window layer holds more than its window."""
    held = {(g.layer.window, g.n_tokens) for g in group_layers(plan.kv) if g.ring} if plan.kv else set()
    return [
        f"a window of {window} holds {tokens} tokens: {window} + chunk {plan.ask.chunk} - 1 in pages of {PAGE_TOKENS}, "
        "and one page more, since a chunk may start anywhere in a page"
        for window, tokens in sorted(held)
        if tokens < plan.ask.ctx
    ]


def _outcome(o: Outcome, is_best: bool, kv_budget: int) -> Text:
    shared = "shared prefix" if o.shared else "independent"
    time = f", {o.time_s:.2f} s at best" if o.time_s is not None else ""
    drafts = (
        f"; drafting would have to yield {o.tokens_per_round_needed:.2f} tokens a round"
        if o.tokens_per_round_needed
        else ""
    )
    text = (
        f"{o.kv} KV, {shared}: {format_bytes(o.kv_bytes)} of {format_bytes(kv_budget)} (room for {o.capacity}){time}: "
    )
    feasible = "feasible" if o.judgement.feasible else f"not feasible: {o.judgement.reason}{drafts}"
    return Text.assemble(
        text, (feasible, "green" if o.judgement.feasible else "red"), ("  <- best" if is_best else "", "bold")
    )


def _speed(speed: Speed) -> str:
    if speed.decode_tok_s_bound is None:
        return f"speed: {speed.basis}"
    expected = f", expect {speed.decode_tok_s_expected:.1f}" if speed.decode_tok_s_expected else ""
    prefill = f"; prompt at least {speed.prefill_s:.2f} s" if speed.prefill_s is not None else ""
    read = format_bytes(speed.read_bytes_per_token or 0)
    ms = 1000 / speed.decode_tok_s_bound
    bound = f"speed: at most {speed.decode_tok_s_bound:.1f} tok/s ({ms:.2f} ms, {read} read a token)"
    return f"{bound}{expected}{prefill}\n  {speed.basis}"


def _drafting(forecast: DraftForecast) -> str:
    """What text that repeats itself gains."""
    gains = [
        f"{g.gain:.1f} x ({g.draft} guesses a round) if {g.accept:.0%} are right" if g.draft else
        f"no gain if {g.accept:.0%} of guesses are right"
        for g in forecast.gains
    ]  # fmt: skip
    return f"drafting: {', '.join(gains)}\n  {forecast.basis}"
