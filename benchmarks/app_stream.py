"""What showing a streamed answer costs: CPU of the app's thread, latency of keys, what decoding loses.

    python -m benchmarks.app_stream [--tokens 8000] [--tok-s 80] [--threads 0]

A synthetic engine, in the engine's own process, streams Markdown (headings, lists, tables, code); the app is the real
one on a pseudo terminal of 120x36; a key is typed every 0.2 s or so and its echo waited for. `--threads N` makes the
engine compute its tokens on N threads; without the app and with it, the same work, gives what decoding loses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import asdict

from localinfer.engine.events import TurnDone
from localinfer.engine.service import EngineService
from tests.fakes.synthetic_engine import OPENER, Script, blocks_for
from tests.fakes.terminal import FIRST_FRAME, Terminal

KEYS = [chr(c) for c in range(0x24D0, 0x24EA)]  # circled letters: nothing else on screen looks like them
TYPED_EACH_S = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--tok-s", type=float, default=80.0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--columns", type=int, default=120)
    parser.add_argument("--rows", type=int, default=36)
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = os.getcwd()
    script = Script(args.tokens, args.tok_s, args.threads, blocks_for(1 / args.tok_s) if args.threads else 0)
    alone = args.tok_s if not args.threads else asyncio.run(alone_tok_s(script))
    with_app(script, alone, args.columns, args.rows)


async def alone_tok_s(script: Script) -> float:
    """The engine's rate where a reader takes the events and shows nothing."""
    service = EngineService(OPENER)
    await service.open(json.dumps({**asdict(script), "n_tokens": min(script.n_tokens, 1600)}))
    done = [event async for event in service.chat("go") if isinstance(event, TurnDone)]
    await service.close()
    return done[0].stats.decode_tok_s


def with_app(script: Script, alone: float, columns: int, rows: int) -> None:
    code = f"from tests.fakes.synthetic_engine import run_app; run_app({json.dumps(asdict(script))!r})"
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "LOCALINFER_HOME": home}
        with Terminal([sys.executable, "-c", code], environment, columns, rows) as terminal:
            terminal.wait_for(*FIRST_FRAME, "ready")
            terminal.type("go\r")
            terminal.wait_for("writing")
            cpu_s, started, n_bytes = terminal.thread_s(), time.perf_counter(), len(terminal.output)
            latencies = type_while_it_streams(terminal)
            wall_s = time.perf_counter() - started
            cpu_s, n_bytes = terminal.thread_s() - cpu_s, len(terminal.output) - n_bytes
    tok_s = script.n_tokens / wall_s
    quantiles = statistics.quantiles(latencies, n=100)
    print(f"app thread        {100 * cpu_s / wall_s:6.1f} % of a core, {1000 * cpu_s / script.n_tokens:.2f} ms a token")
    print(f"key latency       {1000 * quantiles[49]:6.1f} ms median, {1000 * quantiles[98]:.1f} ms p99, "
          f"{1000 * max(latencies):.1f} ms worst of {len(latencies)}")  # fmt: skip
    print(f"to the terminal   {n_bytes / wall_s / 1000:6.1f} kB/s")
    print(
        f"decoding          {tok_s:6.2f} tok/s, {alone:.2f} without the app: {100 * (1 - tok_s / alone):.1f} % slower"
    )


def type_while_it_streams(terminal: Terminal) -> list[float]:
    """Seconds from each key to its echo, until the answer is complete (the state is `ready` again)."""
    latencies: list[float] = []
    begun = len(terminal.output)
    while not terminal.wrote("ready", begun):
        key = KEYS[len(latencies) % len(KEYS)]
        if key == KEYS[0]:
            terminal.type("\x15")  # ctrl+u: the composer is empty again
        pause = time.perf_counter() + random.uniform(0.5, 1.5) * TYPED_EACH_S
        while (left := pause - time.perf_counter()) > 0:
            terminal.read(left)
        typed, at = time.perf_counter(), len(terminal.output)
        terminal.type(key)
        terminal.wait_for(key, since=at)
        latencies.append(time.perf_counter() - typed)
    return latencies


if __name__ == "__main__":
    main()
