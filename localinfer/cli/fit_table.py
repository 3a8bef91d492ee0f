"""How `fit` looks in a terminal: a bar of the parts against the ceiling, a table of the rows, what to do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from localinfer.cli.styled import Span, print_columns, print_line
from localinfer.cli.terminal_text import one_line
from localinfer.kv.spec import PAGE_TOKENS
from localinfer.planner.context_limit import group_layers
from localinfer.planner.kv_quality import trades_json
from localinfer.planner.plan import PARTS, Plan
from localinfer.planner.report import layers_json, weights_and_kv_alone
from localinfer.units import GB, GIB, format_bytes, format_bytes_both, format_seconds

if TYPE_CHECKING:
    from localinfer.cli.fit import Answer
    from localinfer.planner.budget import MemoryBudget
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
    plan = answer.plan
    _print_title(plan)
    print_line(*_bar(plan))
    print_columns(_rows(plan), "<><")
    _print_verdict(plan)
    _print_kv_types(plan)
    if layers:
        print_columns(_layers(plan), ">><>><>>")
        for line in _rings(plan):
            print_line(line)
    _print_scenario(answer)
    if answer.repairs:
        print_line("what would help, cheapest first:")
    for repair in answer.repairs:
        option = f"  {repair.option}" if repair.option else ""
        what = f"  - {repair.change}: {VERDICTS[repair.verdict][0]}, {format_bytes(repair.left)} left"
        print_line(what, (option, "dim"))
    print_line(_speed(answer.speed, plan.ask.prompt or plan.ask.ctx))
    if answer.drafting:
        print_line(_drafting(answer.drafting))
    for note in answer.notes:
        print(f"note: {one_line(note)}", file=sys.stderr)


def _print_scenario(answer: Answer) -> None:
    if not answer.outcomes:
        return
    from localinfer.planner.scenario import best

    chosen = best(answer.outcomes)
    for outcome in answer.outcomes:
        print_line(*_outcome(outcome, outcome is chosen, answer.kv_budget))


def _print_title(plan: Plan) -> None:
    m, b, a = plan.model, plan.budget, plan.ask
    here = f" machine ({b.source})" if b.name == "this" else ""
    requests = f" x {a.requests} requests" if a.requests > 1 else ""
    facts = f"  {one_line(m.arch)}, {m.quant}, {m.params / 1e9:.2f} B parameters, {m.file_bytes / GB:.2f} GB file"
    print_line((one_line(m.name), "bold"), facts)
    print_line(f"on {b.name}{here}, context {a.ctx:,} tokens{requests}, {a.kv_name} KV")


def _bar(plan: Plan) -> list[Span]:
    """Parts in proportion to the budget, which ends at the mark; where they are more, in proportion to their sum."""
    utf = (sys.stdout.encoding or "").lower().startswith("utf")
    full, over, empty, end = ("█", "▒", "░", "▏") if utf else ("#", "+", ".", "|")
    budget = plan.budget.budget_bytes
    scale = BAR_WIDTH / max(budget, plan.total)
    ceiling = round(budget * scale)
    spans: list[Span] = []
    drawn, reached = 0, 0
    for part in PARTS:
        reached += plan.parts[part]
        to = round(reached * scale)
        within = max(drawn, min(to, ceiling))
        spans.append((full * (within - drawn) + over * (to - within), COLORS[part]))
        drawn = to
    if plan.left < 0:
        return [*spans, (f"  {over} is above the ceiling of {format_bytes(budget)}", "red")]
    return [*spans, (empty * max(0, ceiling - drawn), "dim"), end]


def _rows(plan: Plan) -> list[list[Span]]:
    table: list[list[Span]] = []
    for part in PARTS:
        rows = [r for r in plan.rows if r.part == part and r.n_bytes]
        label = (LABELS.get(part, part), COLORS[part])
        if plan.unknown and part in ("kv", "scratch"):
            table.append([label, "unknown", ""])
        if rows:
            table.append([label, format_bytes(plan.parts[part]), ""])
        for row in rows if len(rows) > 1 or part == "kv" else ():
            table.append(_dim(f"  {row.name}", format_bytes(row.n_bytes), row.note))
    table.append(_bold("total", format_bytes_both(plan.total)))
    table += _budget_rows(plan.budget)
    table.append(_bold("left" if plan.left >= 0 else "missing", format_bytes_both(abs(plan.left))))
    return table


def _budget_rows(b: MemoryBudget) -> list[list[Span]]:
    rows: list[list[Span]] = [["budget", format_bytes_both(b.budget_bytes), ""]]
    rows.append(_dim("  memory", format_bytes(b.memory_bytes)))
    rows.append(_dim("  kept for the system", format_bytes(b.reserve_bytes)))
    if b.free_bytes is not None:
        rows.append(_dim("  free now", format_bytes(b.free_bytes)))
    return rows


def _dim(name: str, size: str, note: str = "") -> list[Span]:
    return [(name, "dim"), (size, "dim"), (note, "dim")]


def _bold(name: str, size: str) -> list[Span]:
    return [(name, "bold"), (size, "bold"), ""]


def _print_verdict(plan: Plan) -> None:
    print_line(VERDICTS[plan.verdict], f"; what binds: {BINDS.get(plan.binding, plan.binding)}")
    alone = weights_and_kv_alone(plan)
    after = "" if alone["after_kv"] is None else f", {alone['after_kv'] / GIB:.2f} GiB after it"
    print_line(f"counting file and KV alone: {(alone['before_kv'] or 0) / GIB:.2f} GiB left before KV{after}")


def _print_kv_types(plan: Plan) -> None:
    """For each KV type: how much context fits with it, what it saves against f16 and what it costs."""
    if not plan.max_ctx:
        return
    trades = {row["kv"]: row for row in trades_json(plan)}
    heads: list[Span] = [("KV type", "bold"), ("largest context", "bold")]
    rows = [[*heads, ("saves", "bold"), ("KL divergence from f16", "bold")] if trades else [*heads, "", ""]]
    for kv, tokens in plan.max_ctx.items():
        trade = trades.get(kv)
        saves = format_bytes(trade["saved_bytes"]) if trade else ""
        rows.append([(kv, "green" if kv == plan.ask.kv_name else ""), f"{tokens:,}", saves, _kv_cost(trade)])
    print_columns(rows, "<>><")
    if any(trade["shipped"] and not trade["measured"] for trade in trades.values()):
        print_line(
            ("  measured with other models; `localinfer eval MODEL --text FILE --compare-kv` does with this", "dim")
        )
    if plan.model.n_ctx_train:
        print_line((f"  trained on a context of {plan.model.n_ctx_train:,}", "dim"))


def _kv_cost(trade: dict[str, Any] | None) -> str:
    if not trade:
        return ""
    here = trade["measured"]
    if here:
        return f"{here['kld_mean']:.1e} on this file, {here['top1']:.1%} same best token ({here['when']})"
    return ", ".join(f"{q['kld_mean']:.1e} {q['model']}" for q in trade["shipped"])


def _layers(plan: Plan) -> list[list[Span]]:
    """One line a layer."""
    rows: list[list[Span]] = [["layer", "weights", "kind", "KV heads", "K x V", "types", "tokens held", "KV"]]
    for row in layers_json(plan):
        if "kind" not in row:
            rows.append([str(row["layer"]), format_bytes(row["weights"]), "unknown", "", "", "", "", ""])
            continue
        rows.append(
            [
                str(row["layer"]), format_bytes(row["weights"]), row["kind"], str(row["kv_heads"]),
                f"{row['d_k']} x {row['d_v']}", f"{row['k_type']}/{row['v_type']}", f"{row['tokens']:,}",
                format_bytes(row["kv"]),
            ]
        )  # fmt: skip
    return rows


def _rings(plan: Plan) -> list[str]:
    """Why a sliding-window layer holds more than its window."""
    held = {(g.layer.window, g.n_tokens) for g in group_layers(plan.kv) if g.ring} if plan.kv else set()
    return [
        f"a window of {window} holds {tokens} tokens: {window} + chunk {plan.ask.chunk} - 1 in pages of {PAGE_TOKENS}, "
        "and one page more, since a chunk may start anywhere in a page"
        for window, tokens in sorted(held)
        if tokens < plan.ask.ctx
    ]


def _outcome(o: Outcome, is_best: bool, kv_budget: int) -> list[Span]:
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
    color = "green" if o.judgement.feasible else "red"
    return [text, (feasible, color), ("  <- best" if is_best else "", "bold")]


def _speed(speed: Speed, n_prompt: int) -> str:
    if speed.decode_tok_s_bound is None:
        expected = f"expect {speed.decode_tok_s_expected:.1f} tok/s, " if speed.decode_tok_s_expected else ""
        return f"speed: {expected}{speed.basis}"
    expected = f", expect {speed.decode_tok_s_expected:.1f}" if speed.decode_tok_s_expected else ""
    prefill = f"; prompt of {n_prompt:,} tokens at least {format_seconds(speed.prefill_s)}" if speed.prefill_s else ""
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
