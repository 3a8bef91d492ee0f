"""How long the terminal app takes to start: from the process to its first whole frame, and to the first key's echo.

    python -m benchmarks.app_start [--runs 5] [--model PATH] [--conversations 500x200]

A pseudo terminal of 120x36 takes the app's output; the clock starts before the process does. Its files are under a
folder of their own. `bare interpreter` is `python -c pass`, for comparison with other machines.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from localinfer.history_store import HistoryStore
from tests.fakes.terminal import FIRST_FRAME, Terminal

KEYS = "ⓛⓘ"  # nothing else on screen looks like them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--model", default="", help="default: an empty file, so that none is loaded")
    parser.add_argument("--conversations", default="", metavar="NxM", help="N saved conversations of M messages")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if args.conversations:
            store = fill(home, *map(int, args.conversations.split("x")))
            print_times("search", [search_s(store) for _ in range(args.runs)])
            print_times("list", [search_s(store, "") for _ in range(args.runs)])
        model = args.model or str(home / "absent.gguf")
        Path(model).touch()
        start_s(model, home)  # byte code and page cache
        frames, keys = zip(*(start_s(model, home) for _ in range(args.runs)), strict=True)
    print_times("first frame", frames)
    print_times("first key", keys)
    print_times("bare interpreter", [bare_s() for _ in range(args.runs)])


def start_s(model: str, home: Path) -> tuple[float, float]:
    """Seconds to the first frame, and to the echo of keys that were typed then."""
    command = [sys.executable, "-m", "localinfer.cli.main", "chat", model]
    environment = {**os.environ, "LOCALINFER_HOME": str(home)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # byte code is there, as after an installation
    with Terminal(command, environment) as terminal:
        frame = terminal.wait_for(*FIRST_FRAME)
        terminal.type(KEYS)
        return frame, terminal.wait_for(KEYS)


def bare_s() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - started


def fill(home: Path, n: int, n_messages: int) -> HistoryStore:
    """n saved conversations, each with words of its own."""
    store = HistoryStore(home / "data" / "sessions")
    for index in range(n):
        saved = store.new()
        for i in range(n_messages):
            text = f"message {i} of conversation {index}: " + "about memory, bandwidth and what a token costs " * 8
            saved._record(
                {"t": "message", "id": i + 1, "parent": i, "role": ("user", "assistant")[i % 2], "text": text}
            )
        saved.close()
        saved.file_path.rename(saved.file_path.with_stem(f"20260101-000000-{index:06}"))
    return store


def search_s(store: HistoryStore, query: str = "of conversation 77:") -> float:
    started = time.perf_counter()
    found = store.list(query)
    assert len(found) == (1 if query else len(list(store.folder.iterdir()))), len(found)
    return time.perf_counter() - started


def print_times(name: str, times: list[float] | tuple[float, ...]) -> None:
    print(f"{name:<18}{statistics.median(times):6.3f} s   ({min(times):.3f} .. {max(times):.3f})")


if __name__ == "__main__":
    main()
