"""`localinfer eval MODEL --text FILE`: perplexity, and what quantized KV caches or weights cost."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from localinfer.cli.options import add_engine_options, add_model, engine_options, integer
from localinfer.cli.progress import StatusLine
from localinfer.cli.resolve import resolve
from localinfer.errors import UsageError

MOST_RECORDS = 100_000
KV_TYPES = ("q8_0", "q8_0/q4_0", "q4_0")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("eval", help="perplexity; what quantized KV costs", description=__doc__)
    add_model(parser)
    parser.add_argument("--text", required=True, metavar="FILE", help="the text to predict; - reads stdin")
    parser.add_argument("--window", type=int, default=512, metavar="N", help="tokens at a time (default: 512)")
    parser.add_argument("--score", choices=("half", "all"), default="half", help="which tokens of a window count")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N tokens of the text")
    parser.add_argument("--compare-kv", action="store_true", help="KL divergence of each KV type from f16")
    parser.add_argument(
        "--records",
        metavar="N,N",
        help="also look for one of N six-digit records, in four documents of each length, with each KV type",
    )
    parser.add_argument(
        "--against", metavar="MODEL", help="KL divergence of another quantization of the model from this one"
    )
    parser.add_argument("--json", action="store_true")
    add_engine_options(parser)


def run(args: argparse.Namespace) -> int:
    from localinfer.engine.opening import open_engine
    from localinfer.eval import as_json, evaluate, windows

    lengths = [integer("--records")(n) for n in args.records.split(",")] if args.records else []
    if any(not 4 <= n <= MOST_RECORDS for n in lengths):
        raise UsageError(f"--records: expected numbers from 4 to {MOST_RECORDS}, found {args.records!r}")
    text = read_text(args.text)
    path = resolve(args.model)
    options = replace(engine_options(args), ctx=max(args.window, 4))
    line = StatusLine()
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine(path, options))
        tokenizer = engine.tokenizer
        ids = tokenizer.encode(text, add_special=True, parse_special=False)[: args.limit]
        parts = windows(ids, args.window, args.score, tokenizer.bos_id if tokenizer.add_bos else None)
        others = {}
        for kv in KV_TYPES if args.compare_kv else ():
            others[kv] = stack.enter_context(open_engine(path, replace(options, kv=kv)))
        if args.against:
            other = others["against"] = stack.enter_context(open_engine(resolve(args.against), options))
            if other.config.n_vocab != engine.config.n_vocab:
                raise UsageError(
                    f"--against: expected a vocabulary of {engine.config.n_vocab}, found {other.config.n_vocab}",
                    "it must be another file of the same model",
                )
        total, apart = evaluate(
            engine, parts, others, lambda done, n, ppl: line.show(f"window {done}/{n}  perplexity {ppl:.3f}")
        )
        line.clear()
        _keep(engine.file, apart)
    result = as_json(total, apart)
    if lengths:
        result["retrieval"] = _retrieval(path, options, lengths, line)
    if "against" in result["kv"]:
        result["against"] = result["kv"].pop("against")
    print(json.dumps(result) if args.json else table(result))
    return 0


def _keep(file: Any, apart: dict[str, Any]) -> None:
    """For the plan: `fit` and the app show it from now on."""
    from localinfer.formats.gguf import GGUFFile
    from localinfer.kv_cost import record_kv_cost
    from localinfer.planner.facts import KVCost

    found = {kv: (d.as_json(), d.n) for kv, d in apart.items() if kv in KV_TYPES}
    if found and isinstance(file, GGUFFile):
        record_kv_cost(file, {kv: KVCost(d["kld_mean"], d["top1"], n) for kv, (d, n) in found.items()})


def _retrieval(path: Path, options: Any, lengths: list[int], line: StatusLine) -> dict[str, dict[str, str]]:
    """By KV type and number of records: exact answers of all, `4/4`."""
    from localinfer.engine.opening import open_engine
    from localinfer.retrieval import DOCUMENTS, context_for, found

    with open_engine(path, options) as engine:
        ctx = max(context_for(engine, n) for n in lengths)
    right: dict[str, dict[str, str]] = {}
    for kv in ("f16", *KV_TYPES):
        with open_engine(path, replace(options, ctx=ctx, kv=kv)) as engine:
            for n in lengths:
                line.show(f"looking for one of {n} records with {kv} KV")
                right.setdefault(kv, {})[str(n)] = f"{found(engine, n)}/{DOCUMENTS}"
    line.clear()
    return right


def read_text(name: str) -> str:
    if name == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        return Path(name).expanduser().read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"--text: {name}: {error.strerror}") from None


def table(result: dict[str, Any]) -> str:
    lines = [f"perplexity {result['ppl']:.4f} +- {result['ppl_error']:.4f} over {result['tokens']} tokens"]
    rows = {f"{kv} KV": d for kv, d in result["kv"].items()}
    rows |= {"--against": result["against"]} if "against" in result else {}
    if rows:
        lines.append(f"{'':14} {'KL mean':>10} {'KL 99 %':>10} {'same best':>10} {'perplexity':>11}")
    for name, d in rows.items():
        lines.append(f"{name:14} {d['kld_mean']:10.2e} {d['kld_p99']:10.2e} {d['top1']:10.2%} {d['ppl']:11.4f}")
    for kv, counts in result.get("retrieval", {}).items():
        exact = ", ".join(f"{right} of {n} records" for n, right in counts.items())
        lines.append(f"{kv + ' KV':14} found exactly: {exact}")
    return "\n".join(lines)
