"""What a real engine, which wants every core, loses to the app that shows its answer.

    python -m benchmarks.app_decode MODEL.gguf [--pairs 9] [--tokens 300]

The app on a pseudo terminal of 120x36 and a reader that shows nothing (as `localinfer run --json`) answer the same
question in turns, each with an engine process of its own that stays open; the engine of the one that waits sleeps.
`decode_tok_s` is the engine's own figure on both sides. The first pair is told apart: the app loads what it needs for
code blocks then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localinfer.engine.events import TurnDone
from localinfer.engine.service import ChatMessage, EngineOptions, EngineService, SamplingParams
from tests.fakes.terminal import FIRST_FRAME, Terminal

QUESTION = "Write a long story about a fox who learns to swim."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=300)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        settings = home / "config" / "settings.toml"
        settings.parent.mkdir()
        settings.write_text("saved_kv_mb = 0\n")  # nothing is written while the other one answers
        options = ["--temp", "0", "--draft", "off", "-n", str(args.tokens)]
        command = [sys.executable, "-m", "localinfer.cli.main", "chat", args.model, *options]
        with Terminal(command, {**os.environ, "LOCALINFER_HOME": folder}) as terminal:
            terminal.wait_for(*FIRST_FRAME, "ready")
            asyncio.run(compare(terminal, home, args.model, args.tokens, args.pairs))


async def compare(terminal: Terminal, home: Path, model: str, n_tokens: int, n_pairs: int) -> None:
    service = EngineService()
    await service.open(model, EngineOptions())
    ratios, costs = [], []
    for pair in range(n_pairs + 1):
        turns = [("app", None), ("plain", None)] if pair % 2 else [("plain", None), ("app", None)]
        rates: dict[str, float] = {}
        for side, _ in turns:
            if side == "app":
                rates[side], cost = app_turn(terminal, home)
                costs.append(cost)
            else:
                rates[side] = await plain_turn(service, n_tokens)
        ratios.append(rates["app"] / rates["plain"])
        print(f"{'first pair' if not pair else '':<12}app {rates['app']:6.1f} tok/s, plain {rates['plain']:6.1f}: "
              f"{ratios[-1]:.3f}   {costs[-1]}", flush=True)  # fmt: skip
    await service.close()
    later = ratios[1:]
    print(f"CPU of the app a turn: {statistics.median(float(c.split()[0]) for c in costs[1:]):.0f} ms")
    print(f"median {statistics.median(later):.3f} of {len(later)} pairs ({min(later):.3f} .. {max(later):.3f})")


async def plain_turn(service: EngineService, n_tokens: int) -> float:
    params = SamplingParams(temperature=0.0, max_tokens=n_tokens, draft="off")
    events = service.chat([ChatMessage("user", QUESTION)], params)
    return [event async for event in events if isinstance(event, TurnDone)][0].stats.decode_tok_s


def app_turn(terminal: Terminal, home: Path) -> tuple[float, str]:
    """A new conversation of one question; its rate, and what the app took meanwhile."""
    n_before = len(list(turns_of(home)))
    terminal.type(QUESTION)
    terminal.read(0.2)
    begun = len(terminal.output)
    before = usage(terminal.process.pid)
    terminal.type("\r")
    terminal.wait_for("ready", since=begun, seconds=60)
    after = usage(terminal.process.pid)
    while len(found := list(turns_of(home))) == n_before:
        terminal.read(0.05)
    terminal.type("\x0e")  # ctrl+n
    while terminal.read(0.3):
        pass
    cpu, switches = after[0] - before[0], after[1] - before[1]
    return found[-1]["decode_tok_s"], f"{1000 * cpu:.0f} ms of CPU, {switches} switches"


def turns_of(home: Path) -> Iterator[dict[str, Any]]:
    """Figures of the answers that are complete on disk, the latest last."""
    for file in sorted((home / "data" / "sessions").glob("*.jsonl"), key=lambda path: path.stat().st_mtime):
        for line in file.read_text().splitlines():
            if '"stats"' in line:
                yield json.loads(line)["stats"]


def usage(pid: int) -> tuple[float, int]:
    """CPU seconds and context switches of a process's threads. Linux only."""
    ticks = switches = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
        switches += sum(int(line.split()[1]) for line in (task / "status").read_text().splitlines() if "ctxt" in line)
    return ticks / os.sysconf("SC_CLK_TCK"), switches


if __name__ == "__main__":
    main()
