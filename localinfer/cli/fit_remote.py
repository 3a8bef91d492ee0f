"""`localinfer fit hf:OWNER/REPO`: every quantization of a repository, what it leaves, and the best that fits."""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from localinfer.cli.progress import StatusLine
from localinfer.cli.styled import Span, print_columns, print_line
from localinfer.errors import DoesNotFit, LocalinferError, UsageError
from localinfer.hub import RemoteModel, list_models, parse_reference, unique_references
from localinfer.remote import Known, open_remote
from localinfer.units import format_bytes

if TYPE_CHECKING:
    from localinfer.cli.fit import Answer

AT_ONCE = 4


def compare(args: argparse.Namespace) -> int | None:
    """Print the table, return the exit code; None where the reference means a single model. Raises the error tree."""
    reference = parse_reference(args.model)
    if reference.quant or reference.file:
        return None
    models = list_models(reference.repo)
    if len(models) < 2:
        return None
    line, known = StatusLine(), Known()
    line.show(f"reading {len(models)} headers ...")
    rows = [(models[0], _answer(args, models[0], known))]  # the first teaches the others the vocabulary
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows += zip(models[1:], pool.map(lambda m: _answer(args, m, known), models[1:]), strict=True)
    line.clear()
    best = _best(rows)
    if args.json:
        references = {m: ref for ref, m in unique_references([m for m, _ in rows]).items()}
        listed = [_as_json(references[model], model, answer) for model, answer in rows]
        print(json.dumps({"models": listed, "best": references[best] if best else None}, indent=1))
    else:
        _print_table(reference.repo, rows, best)
    return 0 if best else DoesNotFit.exit_code


Rows = list[tuple[RemoteModel, "Answer | LocalinferError"]]


def _answer(args: argparse.Namespace, model: RemoteModel, known: Known) -> Answer | LocalinferError:
    """The plan of one quantization; what is wrong with its file does not hide the others."""
    from localinfer.cli.fit import answer_of

    try:
        with open_remote(model, known) as f:
            return answer_of(argparse.Namespace(**vars(args)), f)
    except UsageError:
        raise  # the options, the network
    except LocalinferError as error:
        return error


def _best(rows: Rows) -> RemoteModel | None:
    """The largest that fits: of one model's quantizations the one with the smallest error."""
    from localinfer.cli.fit import Answer

    fitting = [m for m, a in rows if isinstance(a, Answer) and a.plan.verdict in ("fits", "tight")]
    return max(fitting, key=lambda m: m.n_bytes, default=None)


def _print_table(repo: str, rows: Rows, best: RemoteModel | None) -> None:
    from localinfer.cli.fit import Answer
    from localinfer.cli.fit_table import VERDICTS

    first = next((a for _, a in rows if isinstance(a, Answer)), None)
    if first:
        plan = first.plan
        print_line((repo, "bold"), f"  on {plan.budget.name}, context {plan.ask.ctx:,} tokens, {plan.ask.kv_name} KV")
    table: list[list[Span]] = [["model", "file", "verdict", "left", "at most", "", ""]]
    for shown, (model, answer) in zip(unique_references([m for m, _ in rows]), rows, strict=True):
        if not isinstance(answer, Answer):
            table.append([shown, format_bytes(model.n_bytes), (answer.message, "red"), "", "", "", ""])
            continue
        bound = answer.speed.decode_tok_s_bound
        speed = [f"{bound:.1f}", "tok/s"] if bound else ["", ""]
        mark: Span = ("<- best that fits", "bold") if model is best else ""
        verdict = VERDICTS[answer.plan.verdict]
        table.append([shown, format_bytes(model.n_bytes), verdict, format_bytes(answer.plan.left), *speed, mark])
    print_columns(table, "<><>><<")
    if first and not any(isinstance(a, Answer) and a.speed.decode_tok_s_bound for _, a in rows):
        print_line((first.speed.basis, "dim"))


def _as_json(reference: str, model: RemoteModel, answer: Answer | LocalinferError) -> dict[str, Any]:
    facts: dict[str, Any] = {"reference": reference, "files": list(model.files), "file_bytes": model.n_bytes}
    if isinstance(answer, LocalinferError):
        return {**facts, "error": answer.message}
    plan, speed = answer.plan, answer.speed
    return {
        **facts, "quant": plan.model.quant, "verdict": plan.verdict, "total": plan.total, "left": plan.left,
        "binding": plan.binding, "max_ctx": dict(plan.max_ctx) or None,
        "decode_tok_s_bound": speed.decode_tok_s_bound, "decode_tok_s_expected": speed.decode_tok_s_expected,
    }  # fmt: skip
