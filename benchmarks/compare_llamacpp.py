#!/usr/bin/env python3
"""localinfer and llama.cpp on the same file, turn by turn: pairwise ratios with median and range.

    python benchmarks/compare_llamacpp.py MODEL.gguf --llamacpp-python PATH/bin/python \\
        --pp 512 --tg 64 --depth 0,2048 --kv f16 --threads 2 --pairs 5

Each engine lives in a process of its own, loaded once, and sleeps while the other is measured. A pair is one
measurement of each, right after the other, so what else the machine does at that time weighs on both; the order
changes from pair to pair. `--llamacpp-python` is a Python that has llama-cpp-python; tokens are the same random ids.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from typing import Any

LLAMA_KV = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
LLAMA_BATCH = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--llamacpp-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--pp", type=int, default=512)
    parser.add_argument("--tg", type=int, default=64)
    parser.add_argument("--depth", default="0", help="comma-separated")
    parser.add_argument("--kv", default="f16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", choices=["localinfer", "llama.cpp"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve(args)
    else:
        compare(args)


def compare(args: argparse.Namespace) -> None:
    ours, theirs = Worker(args, "localinfer", sys.executable), Worker(args, "llama.cpp", args.llamacpp_python)
    rows = []
    for depth in map(int, args.depth.split(",")):
        for kind, n in (("prefill", args.pp), ("decode", args.tg)):
            if n:
                rows.append(measure(ours, theirs, kind, n, depth, args.pairs))
                if not args.json:
                    print_row(rows[-1])
    if args.json:
        print(json.dumps({"model": args.model, "kv": args.kv, "threads": args.threads, "rows": rows}))


def measure(ours: Worker, theirs: Worker, kind: str, n: int, depth: int, pairs: int) -> dict[str, Any]:
    ask = {"kind": kind, "n": n, "depth": depth}
    for worker in (ours, theirs):
        worker.rate(ask)  # warms up
    a, b = [], []
    for i in range(pairs):
        for worker, rates in ((ours, a), (theirs, b)) if i % 2 else ((theirs, b), (ours, a)):
            rates.append(worker.rate(ask))
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    return {**ask, "localinfer": a, "llama.cpp": b, "ratio": statistics.median(ratios), "ratios": ratios}


def print_row(row: dict[str, Any]) -> None:
    low, high = min(row["ratios"]), max(row["ratios"])
    print(
        f"{row['kind']:8}{row['n']:5} @ {row['depth']:5}: {row['ratio']:.2f} x llama.cpp ({low:.2f} .. {high:.2f}),"
        f" {statistics.median(row['localinfer']):.1f} against {statistics.median(row['llama.cpp']):.1f} tok/s",
        flush=True,
    )


class Worker:
    """One engine in its own process; asked by a line of JSON, answers with tokens a second."""

    def __init__(self, args: argparse.Namespace, engine: str, python: str) -> None:
        command = [python, __file__, args.model, "--worker", engine]
        for name in ("pp", "tg", "depth", "kv", "threads"):
            command += [f"--{name}", str(getattr(args, name))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rate(self, ask: dict[str, Any]) -> float:
        assert self._process.stdin and self._process.stdout
        print(json.dumps(ask), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a worker ended: see its message above")
        return float(line)


def serve(args: argparse.Namespace) -> None:
    n_ctx = max(map(int, args.depth.split(","))) + max(args.pp, args.tg) + 16
    engine = (Localinfer if args.worker == "localinfer" else LlamaCpp)(args, n_ctx)
    for line in sys.stdin:
        ask = json.loads(line)
        print(engine.rate(ask["kind"], ask["n"], ask["depth"]), flush=True)


class Localinfer:
    def __init__(self, args: argparse.Namespace, n_ctx: int) -> None:
        import localinfer
        from localinfer.bench import random_ids

        self._engine = localinfer.load(args.model, ctx=n_ctx, kv=args.kv, threads=args.threads)
        self._ids = random_ids(self._engine, n_ctx)

    def rate(self, kind: str, n: int, depth: int) -> float:
        from localinfer.bench import decode_rate, prefill_rate

        return (prefill_rate if kind == "prefill" else decode_rate)(self._engine, self._ids, depth, n)


class LlamaCpp:
    """Through the C API, as its own bench does: a batch of up to 512 for prompts, one token at a time to decode."""

    def __init__(self, args: argparse.Namespace, n_ctx: int) -> None:
        import ctypes

        import llama_cpp

        self._lib = lib = llama_cpp
        self._quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        lib.llama_log_set(self._quiet, ctypes.c_void_p(0))
        lib.llama_backend_init()
        model_params = lib.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model = lib.llama_model_load_from_file(args.model.encode(), model_params)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, LLAMA_BATCH, LLAMA_BATCH
        params.n_threads = params.n_threads_batch = args.threads
        params.type_k = params.type_v = LLAMA_KV[args.kv]
        if args.kv not in ("f32", "f16"):
            params.flash_attn_type = 1  # a quantized V needs it
        self._context = lib.llama_init_from_model(model, params)
        n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        rng = random.Random(0)
        self._ids = [rng.randrange(n_vocab // 50, n_vocab - n_vocab // 50) for _ in range(n_ctx)]

    def rate(self, kind: str, n: int, depth: int) -> float:
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)
        self._put(0, depth)
        start = time.perf_counter()
        if kind == "prefill":
            self._put(depth, n)
        else:
            for i in range(n):
                self._put(depth + i, 1)
        return n / (time.perf_counter() - start)

    def _put(self, start: int, n: int) -> None:
        for at in range(start, start + n, LLAMA_BATCH):
            part = self._ids[at : min(at + LLAMA_BATCH, start + n)]
            ids = (self._lib.llama_token * len(part))(*part)
            assert self._lib.llama_decode(self._context, self._lib.llama_batch_get_one(ids, len(part))) == 0
        self._lib.llama_synchronize(self._context)


if __name__ == "__main__":
    main()
