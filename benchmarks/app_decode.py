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
from dataclasses import dataclass
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
    engine = (await service.open(model, EngineOptions())).pid
    turns: list[tuple[Turn, Turn]] = []
    for pair in range(n_pairs + 1):
        if pair % 2:
            plain = await plain_turn(service, engine, n_tokens)
        app = app_turn(terminal, home)
        if not pair % 2:
            plain = await plain_turn(service, engine, n_tokens)
        turns.append((app, plain))
        print(
            f"{'' if pair else 'first pair':<12}app {app}   plain {plain}   {app.tok_s / plain.tok_s:.3f}", flush=True
        )
    await service.close()
    ratios = [app.tok_s / plain.tok_s for app, plain in turns[1:]]
    print(f"median {statistics.median(ratios):.3f} of {n_pairs} pairs ({min(ratios):.3f} .. {max(ratios):.3f})")
    for name, index in (("app", 0), ("plain", 1)):
        share = statistics.median(pair[index].waited for pair in turns[1:])
        print(f"{name}: the engine waited {100 * share:.1f} % of its time for a core")
    print(f"the app took {1000 * statistics.median(app.cpu_s for app, _ in turns[1:]):.0f} ms of a core a turn")


@dataclass(frozen=True)
class Turn:
    tok_s: float
    waited: float  # share of the time that threads of the engine could have run, and had no core
    cpu_s: float = 0.0  # of the app

    def __str__(self) -> str:
        return f"{self.tok_s:6.1f} tok/s, waited {100 * self.waited:4.1f} %"


async def plain_turn(service: EngineService, engine: int, n_tokens: int) -> Turn:
    params = SamplingParams(temperature=0.0, max_tokens=n_tokens, draft="off")
    before = usage(engine)
    events = service.chat([ChatMessage("user", QUESTION)], params)
    *_, done = [event async for event in events]
    assert isinstance(done, TurnDone), done
    return Turn(done.stats.decode_tok_s, waited(before, usage(engine)))


def app_turn(terminal: Terminal, home: Path) -> Turn:
    """A new conversation of one question."""
    app = terminal.process.pid
    engine = int(Path(f"/proc/{app}/task/{app}/children").read_text().split()[0])
    n_before = len(list(turns_of(home)))
    terminal.type(QUESTION)
    terminal.read(0.2)
    begun = len(terminal.output)
    terminal.type("\r")
    terminal.wait_for("writing", since=begun, seconds=60)
    before, cpu_s = usage(engine), usage(app)[0]
    terminal.wait_for("ready", since=begun, seconds=60)
    turn = (waited(before, usage(engine)), usage(app)[0] - cpu_s)
    while len(found := list(turns_of(home))) == n_before:
        terminal.read(0.05)
    terminal.type("\x0e")  # ctrl+n
    while terminal.read(0.3):
        pass
    return Turn(found[-1]["decode_tok_s"], *turn)


def turns_of(home: Path) -> Iterator[dict[str, Any]]:
    """Figures of the answers that are complete on disk, the latest last."""
    for file in sorted((home / "data" / "sessions").glob("*.jsonl"), key=lambda path: path.stat().st_mtime):
        for line in file.read_text().splitlines():
            if '"stats"' in line:
                yield json.loads(line)["stats"]


def usage(pid: int) -> tuple[float, float]:
    """Seconds that a process's threads ran, and that they could have run. Linux only."""
    figures = [(task / "schedstat").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    ran, waited_for = (sum(int(figure[i]) for figure in figures) / 1e9 for i in (0, 1))
    return ran, waited_for


def waited(before: tuple[float, float], after: tuple[float, float]) -> float:
    ran, waited_for = (after[i] - before[i] for i in (0, 1))
    return waited_for / (ran + waited_for)


if __name__ == "__main__":
    main()
