"""`localinfer bench MODEL`: prefill and decode speed at context depths, against the machine's own bandwidth."""

from __future__ import annotations

import argparse
import asyncio
import csv
import hashlib
import json
import os
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localinfer import __version__
from localinfer.cli.options import add_engine_options, add_model, engine_options
from localinfer.cli.progress import StatusLine
from localinfer.cli.resolve import resolve
from localinfer.errors import UsageError
from localinfer.units import parse_tokens

if TYPE_CHECKING:
    from localinfer.bench import BenchAsk, Roof, Row
    from localinfer.engine.engine import Engine
    from localinfer.engine.params import EngineOptions

HASH_LIMIT = 4 * 10**9  # bytes of a file that is hashed without being asked: some seconds
FIRST_TOKEN_PROMPT = "Name the largest city of each of these"  # 8 to 10 tokens


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("bench", help="measure speed against the machine's limits", description=__doc__)
    add_model(parser)
    group = parser.add_argument_group("what to measure (comma-separated lists multiply)")
    group.add_argument("--pp", default="512", metavar="N,..", help="tokens to prefill (default: 512; 0: none)")
    group.add_argument("--tg", default="64", metavar="N,..", help="tokens to decode (default: 64; 0: none)")
    group.add_argument("--depth", default="0", metavar="N,..", help="tokens already in the context (default: 0)")
    group.add_argument("--reps", type=int, default=3, metavar="N", help="repetitions (default: 3)")
    group.add_argument("--verify", nargs="?", const="1,2,3,4,6,8,12,16", metavar="N,..", help="cost of checking drafts")
    group.add_argument("--load", action="store_true", help="load time and first token, cold and warm")
    group.add_argument(
        "--draft", nargs="?", const="auto", default="off", metavar="K",
        help="gain by drafting on a fixed set of prompts: on against off, at most K guesses a round",
    )  # fmt: skip
    out = parser.add_argument_group("output")
    out.add_argument("--json", action="store_true")
    out.add_argument("--csv", metavar="FILE", help="write the rows; - for stdout")
    out.add_argument("--plot", metavar="FILE.svg", help="draw speed over depth against the bound")
    out.add_argument("--no-save", action="store_true", help="do not keep the result for the planner")
    add_engine_options(parser, several_threads=True)
    parser.set_defaults(kv="f16")


def run(args: argparse.Namespace) -> int:
    from localinfer.bench import Roof, run_bench, with_mbu
    from localinfer.engine.opening import open_engine
    from localinfer.engine.params import parse_draft

    ask, draft = bench_ask(args), parse_draft(args.draft)
    path = resolve(args.model)
    options = engine_options(argparse.Namespace(**{**vars(args), "ctx": None, "kv": ask.kvs[0], "threads": None}))
    line, roof, rows = StatusLine(), Roof(), []
    engines: list[Engine] = []

    def opened(o: EngineOptions) -> Engine:
        engines[:] = [open_engine(path, o)]
        return engines[0]

    try:
        for row in run_bench(opened, ask, options, roof, lambda text: line.show(f"measuring: {text}")):
            line.clear()
            rows.append(row)
            if not args.json and args.csv != "-":
                print_row(row, first=len(rows) == 1)
    finally:
        line.clear()
    rows = [with_mbu(row, roof.bandwidth_bytes_s) for row in rows]
    result = report(path, engines[0], rows, roof, ask)
    if args.load:
        result["load"] = asyncio.run(load_times(path, replace(options, kv=ask.kvs[0], ctx=2048)))
    if draft != "off":
        from localinfer.bench_draft import measure_drafting

        result["draft"] = measure_drafting(path, options, line.show, draft, args.reps)
        line.clear()
    if not args.no_save and not is_busy(result["machine"]):
        save(engines[0], rows, roof)
    write(args, result, rows, roof)
    return 0


def bench_ask(args: argparse.Namespace) -> BenchAsk:
    from localinfer.bench import BenchAsk
    from localinfer.kv.spec import parse_kv_types

    if args.reps < 1:
        raise UsageError(f"--reps: expected 1 or more, found {args.reps}")
    kvs = tuple(args.kv.split(","))
    for kv in kvs:
        parse_kv_types(kv)
    threads = tuple(_counts(args.threads, "--threads")) if args.threads else (None,)
    if 0 in threads:
        raise UsageError("--threads: expected 1 or more, found 0")
    return BenchAsk(
        pp=tuple(n for n in _counts(args.pp, "--pp") if n),
        tg=tuple(n for n in _counts(args.tg, "--tg") if n),
        depths=tuple(_counts(args.depth, "--depth")),
        kvs=kvs,
        threads=threads,
        reps=args.reps,
        verify=tuple(_counts(args.verify, "--verify")) if args.verify else (),
    )


def _counts(text: str, name: str) -> list[int]:
    """`0,2048,8k` -> numbers."""
    return [0 if part.strip() == "0" else parse_tokens(part, name) for part in text.split(",")]


def report(path: Path, engine: Engine, rows: list[Row], roof: Roof, ask: BenchAsk) -> dict[str, Any]:
    from localinfer.machine import describe_machine

    plan = engine.plan
    return {
        "engine": "localinfer",
        "version": __version__,
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "model": {
            "file": path.name, "sha256": sha256(path), "arch": engine.config.arch,
            "quant": plan.model.quant if plan else "",
        },
        "backend": engine.status().backend,
        "threads": max(row.threads for row in rows) if rows else engine.threads,
        "bandwidth_bytes_s": roof.bandwidth_bytes_s,
        "flops": roof.flops,
        "rows": [row.as_json() for row in rows],
    }  # fmt: skip


def sha256(path: Path) -> str | None:
    """Of the file; None for a folder, or one so large that hashing it would take longer than the measurement."""
    if path.is_dir() or path.stat().st_size > HASH_LIMIT:
        return None
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


async def load_times(path: Path, options: EngineOptions) -> dict[str, float]:
    """Seconds from nothing to a loaded model, and to the first token of a short prompt; page cache empty, and full."""
    found: dict[str, float] = {}
    for name in ("cold", "warm"):
        if name == "cold" and not drop_page_cache(path):
            continue
        start = time.perf_counter()
        found[f"{name}_load_s"], ttft = await _first_token(path, options, start)
        found[f"{name}_first_token_s"] = ttft
    return found


async def _first_token(path: Path, options: EngineOptions, start: float) -> tuple[float, float]:
    from localinfer.engine.events import TextDelta
    from localinfer.engine.service import EngineService, SamplingParams

    service = EngineService()
    try:
        await service.open(path, options)
        loaded = time.perf_counter() - start
        async for event in service.chat(FIRST_TOKEN_PROMPT, SamplingParams(temperature=0, max_tokens=4)):
            if isinstance(event, TextDelta):
                return loaded, time.perf_counter() - start
        return loaded, float("nan")
    finally:
        await service.close()


def drop_page_cache(path: Path) -> bool:
    """Ask the system to forget the pages of a file, or of a folder's weights; False where it cannot be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with suppress(OSError):
        for file in path.glob("*.safetensors") if path.is_dir() else (path,):
            with file.open("rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return True
    return False


def is_busy(machine: dict[str, Any]) -> bool:
    """Did others want the cores too? Our own threads make up one load of `cores`."""
    return machine.get("load_average", 0.0) > machine["cores"] + 1


def save(engine: Engine, rows: list[Row], roof: Roof) -> None:
    """Keep what the planner's expectation is made of: bandwidth, prefill's FLOP/s, decode's share by weight type."""
    from localinfer.bench import verify_costs
    from localinfer.device import machine_name
    from localinfer.planner.efficiency import record_speed
    from localinfer.planner.speed import prefill_flops

    if engine.plan is None or engine.status().backend != "cpu":
        return
    model = engine.plan.model
    shares = [row.mbu for row in rows if row.kind == "decode" and row.depth == 0 and row.mbu]
    reached = [prefill_flops(model, r.n, r.depth) / r.n * r.median for r in rows if r.kind == "prefill"]
    with suppress(OSError):  # a full disk does not spoil a measurement
        record_speed(
            machine_name(),
            engine.plan.budget.platform,
            when=date.today().isoformat(),
            bandwidth_bytes_s=roof.bandwidth_bytes_s or None,
            flops=max(reached, default=None),
            mbu={model.weight_type: max(shares)} if shares else None,
            verify=verify_costs(rows),
        )


def print_row(row: Row, first: bool) -> None:
    if first:
        print("kind        n   depth  kv         threads     tok/s   (min .. max)")
    unit = "rounds/s" if row.kind == "verify" else ""
    low, high = min(row.reps), max(row.reps)
    print(
        f"{row.kind:8}{row.n:5}{row.depth:8}  {row.kv:10} {row.threads:7} {row.median:9.1f}   "
        f"({low:.1f} .. {high:.1f}) {unit}".rstrip(),
        flush=True,
    )


def write(args: argparse.Namespace, result: dict[str, Any], rows: list[Row], roof: Roof) -> None:
    if args.csv:
        write_csv(args.csv, rows)
    if args.plot:
        write_plot(Path(args.plot), result, rows, roof)
    if args.json:
        print(json.dumps(result))
    elif args.csv != "-":
        print_summary(result, rows)


def print_summary(result: dict[str, Any], rows: list[Row]) -> None:
    print(f"\nthis machine reads {result['bandwidth_bytes_s'] / 1e9:.1f} GB/s", end="")
    print(f" and computes {result['flops'] / 1e9:.0f} GFLOP/s" if result["flops"] else "", end="\n")
    for row in rows:
        if row.mbu is not None and row.kind == "decode":
            print(
                f"decode at depth {row.depth}, {row.kv}: {row.read_bytes_per_token / 1e6:.1f} MB a token, "
                f"{row.mbu:.0%} of that bandwidth, repetitions within {row.spread:.0%}"
            )
    for name, seconds in result.get("load", {}).items():
        print(f"{name.removesuffix('_s').replace('_', ' ')}: {seconds:.2f} s")
    print_drafting(result.get("draft"))
    if is_busy(result["machine"]):
        load = result["machine"]["load_average"]
        print(f"note: other programs ran (load {load}): the figures are too low, and are not kept", file=sys.stderr)


def print_drafting(found: dict[str, Any] | None) -> None:
    if not found:
        return
    for row in found["rows"]:
        print(
            f"drafting, {row['name']}: {row['gain']:.2f} x, {row['off_tok_s']:.1f} -> {row['on_tok_s']:.1f} tok/s, "
            f"{row['tokens_per_round']:.2f} tokens a step, worst prompt {row['worst']:.2f} x"
        )
    same = "the same text everywhere" if found["same_text"] else "NOT the same text: a bug, please report it"
    print(
        f"drafting: copy-heavy half {found['copy_heavy_gain']:.2f} x, the rest {found['other_gain']:.2f} x, "
        f"worst prompt {found['worst_gain']:.2f} x; {same}"
    )


CSV_FIELDS = ("kind", "n", "depth", "kv", "threads", "min", "median", "max", "read_bytes_per_token", "mbu")


def write_csv(target: str, rows: list[Row]) -> None:
    with nullcontext(sys.stdout) if target == "-" else open(target, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(CSV_FIELDS)
        for row in rows:
            found = {**row.as_json(), **row.as_json()["tok_s"]}
            writer.writerow([found[name] for name in CSV_FIELDS])


def write_plot(target: Path, result: dict[str, Any], rows: list[Row], roof: Roof) -> None:
    """Decode speed over depth, a line a KV type, each with the most that its bytes allow at this bandwidth."""
    from localinfer.svg_plot import Line, line_chart

    lines = []
    for kv in dict.fromkeys(row.kv for row in rows):
        found = sorted((r.depth + r.n / 2, r) for r in rows if r.kind == "decode" and r.kv == kv)
        if found:
            lines.append(Line(kv, [(x, r.median) for x, r in found]))
            bound = [(x, roof.bandwidth_bytes_s / r.read_bytes_per_token) for x, r in found if r.read_bytes_per_token]
            lines.append(Line(f"{kv}, bound", bound, dashed=True))
    title = f"{result['model']['file']}: decoding, {result['threads']} threads"
    target.write_text(line_chart(title, "tokens in the context", "tokens a second", lines))
