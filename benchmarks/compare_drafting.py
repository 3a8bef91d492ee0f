#!/usr/bin/env python3
"""Drafting on the corpus, ours and llama.cpp's prompt lookup: speed on against off, each engine against itself.

    python benchmarks/compare_drafting.py MODEL.gguf --llamacpp-python PATH/bin/python [--first 0 --count 60 --reps 1]

Greedy answers of up to 96 tokens to the same token ids, decoding time only, on and off in turn. llama.cpp's side is
`LlamaPromptLookupDecoding` of llama-cpp-python (its documentation recommends 10 guesses, and 2 on a CPU), in a process
of its own that sleeps while ours is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

N_CTX, MOST_TOKENS = 2048, 96
GUESSES = (2, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--llamacpp-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="number of the first prompt")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--reps", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve(args)
    else:
        compare(args)


def compare(args: argparse.Namespace) -> None:
    from localinfer.draft_corpus import COPY_HEAVY, corpus
    from localinfer.engine.opening import open_engine
    from localinfer.engine.params import EngineOptions

    theirs = subprocess.Popen(
        [args.llamacpp_python, __file__, args.model, "--worker", "--threads", str(args.threads)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    gains: dict[bool, list[list[float]]] = {True: [], False: []}
    with open_engine(Path(args.model), EngineOptions(ctx=N_CTX, threads=args.threads)) as engine:
        for prompt in corpus()[args.first : args.first + args.count]:
            rows = [_once(engine, theirs, prompt, rep) for rep in range(args.reps)]
            row = [statistics.median(column) for column in zip(*rows, strict=True)]
            gains[prompt.kind in COPY_HEAVY].append(row)
            cells = ", ".join(f"{g:.2f} x" for g in row)
            print(
                f"{prompt.kind:18} localinfer, llama.cpp with {GUESSES[0]} and with {GUESSES[1]}: {cells}", flush=True
            )
    for copying, rows in gains.items():
        if rows:
            columns = list(zip(*rows, strict=True))
            middle = ", ".join(f"{statistics.median(c):.2f} x (worst {min(c):.2f})" for c in columns)
            print(f"{'copy-heavy' if copying else 'the rest'}, median of {len(rows)}: {middle}")


def _once(engine: Any, theirs: subprocess.Popen[str], prompt: Any, rep: int) -> list[float]:
    """Gains on one prompt: ours, theirs with each number of guesses."""
    from localinfer.bench_draft import compare as compare_ours
    from localinfer.engine.chat_prompt import make_prompt

    ours = compare_ours(engine, prompt, first=rep % 2)
    ids = make_prompt(engine.tokenizer, engine.template, prompt.messages, None).ids
    rates = {}
    for guesses in (0, *GUESSES):
        print(json.dumps({"ids": ids, "guesses": guesses}), file=theirs.stdin, flush=True)
        assert theirs.stdout
        rates[guesses] = float(theirs.stdout.readline() or sys.exit("the worker ended: see its message above"))
    return [ours.gain, *(rates[g] / rates[0] for g in GUESSES)]


def serve(args: argparse.Namespace) -> None:
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    drafters = {g: LlamaPromptLookupDecoding(num_pred_tokens=g) for g in GUESSES}
    model = Llama(
        args.model, n_ctx=N_CTX, n_threads=args.threads, n_threads_batch=args.threads, verbose=False,
        draft_model=drafters[GUESSES[0]],
    )  # fmt: skip
    ends = {model.token_eos(), model._model.token_eot()}
    for line in sys.stdin:
        ask = json.loads(line)
        model.draft_model = drafters.get(ask["guesses"])
        model.reset()
        print(decode_rate(model, ask["ids"], ends), flush=True)


def decode_rate(model: Any, ids: list[int], ends: set[int]) -> float:
    """Tokens a second after the first one."""
    start, n = 0.0, 0
    for token in model.generate(ids, temp=0.0, repeat_penalty=1.0):
        n += 1
        start = start or time.perf_counter()
        if token in ends or n == MOST_TOKENS:
            break
    return (n - 1) / (time.perf_counter() - start) if n > 1 else 1.0


if __name__ == "__main__":
    main()
