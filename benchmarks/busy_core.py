#!/usr/bin/env python3
"""Decoding while another program wants one of the cores: speed against our own on one quiet core.

    python benchmarks/busy_core.py MODEL.gguf --threads 2 --pairs 5

The other program is a plain loop at normal priority, held to one core. Each round measures one thread alone on the
quiet machine, then all threads with the loop running.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import localinfer
from localinfer.bench import decode_rate, random_ids

LOOP = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"


@contextmanager
def busy(core: int) -> Iterator[None]:
    """A loop that never sleeps on that core."""
    with subprocess.Popen([sys.executable, "-c", LOOP, str(core)], stdout=subprocess.PIPE) as loop:
        assert loop.stdout
        loop.stdout.readline()
        time.sleep(0.2)
        try:
            yield
        finally:
            loop.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tg", type=int, default=96)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    core = min(os.sched_getaffinity(0))
    one, all_of_them = (localinfer.load(args.model, ctx=args.tg + 16, threads=n) for n in (1, args.threads))
    ids = random_ids(one, 8)
    for engine in (one, all_of_them):
        decode_rate(engine, ids, 0, args.tg)
    quiet, quiet_all, loaded = [], [], []
    for _ in range(args.pairs):
        quiet.append(decode_rate(one, ids, 0, args.tg))
        quiet_all.append(decode_rate(all_of_them, ids, 0, args.tg))
        with busy(core):
            loaded.append(decode_rate(all_of_them, ids, 0, args.tg))
    ratios = [a / b for a, b in zip(loaded, quiet, strict=True)]
    scaling = [a / b for a, b in zip(quiet_all, quiet, strict=True)]
    print(
        f"{args.threads} threads beside a busy core: {statistics.median(ratios):.2f} x one quiet thread"
        f" ({min(ratios):.2f} .. {max(ratios):.2f}); {statistics.median(loaded):.1f} tok/s,"
        f" one quiet thread {statistics.median(quiet):.1f}"
    )
    print(
        f"{args.threads} threads on a quiet machine: {statistics.median(scaling):.2f} x one"
        f" ({min(scaling):.2f} .. {max(scaling):.2f}), {statistics.median(quiet_all):.1f} tok/s"
    )


if __name__ == "__main__":
    main()
