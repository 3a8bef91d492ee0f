"""Bench runs as the bench screen shows them: rows read from `localinfer bench` as they are measured, saved, compared.

The measuring runs in a process of its own, by the command line that anybody can repeat.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

_ROW = re.compile(
    r"(?P<kind>prefill|decode)\s+(?P<n>\d+)\s+(?P<depth>\d+)\s+(?P<kv>\S+)\s+(?P<threads>\d+)\s+(?P<tok_s>[\d.]+)\s+"
    r"\((?P<low>[\d.]+) \.\. (?P<high>[\d.]+)\)"
)
DEPTHS = (0, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class BenchRow:
    """One measured rate in tokens per second: the median, and the range of the repetitions."""

    kind: str
    n: int
    depth: int
    kv: str
    tok_s: float
    low: float
    high: float

    @property
    def key(self) -> tuple[str, int, int, str]:
        """What makes two rows comparable."""
        return self.kind, self.n, self.depth, self.kv


@dataclass(frozen=True)
class SavedRun:
    """A run that was saved, and when."""

    when: str
    rows: tuple[BenchRow, ...]

    @property
    def rates(self) -> dict[tuple[str, int, int, str], float]:
        """Tokens per second by what makes rows comparable."""
        return {row.key: row.tok_s for row in self.rows}


def parse_row(line: str) -> BenchRow | None:
    """A line of `localinfer bench`'s table, or None for any other line."""
    match = _ROW.match(line.strip())
    if match is None:
        return None
    return BenchRow(
        match["kind"], int(match["n"]), int(match["depth"]), match["kv"], float(match["tok_s"]),
        float(match["low"]), float(match["high"]),
    )  # fmt: skip


def command(path: str, kv: str, ctx: int, backend: str = "auto") -> list[str]:
    """What to run to measure prefill and decode over the depths that fit into a context."""
    depths = [depth for depth in DEPTHS if depth + 320 <= max(ctx, 512)]
    return [
        sys.executable, "-m", "localinfer.cli.main", "bench", path, "--pp", "256", "--tg", "32", "--reps", "3",
        "--depth", ",".join(map(str, depths)), "--kv", kv, "--backend", backend,
    ]  # fmt: skip


def save_run(folder: Path, model: str, rows: Iterable[BenchRow]) -> Path:
    """Write a run; its file. OSError where that cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{_safe(model)}.json"
    data = {"model": model, "time": time.strftime("%Y-%m-%d %H:%M"), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def saved_runs(folder: Path, model: str) -> list[SavedRun]:
    """The saved runs of a model, the latest first."""
    runs = []
    for path in sorted(folder.glob(f"*-{_safe(model)}.json"), reverse=True):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            rows = tuple(BenchRow(**row) for row in data["rows"])
            if data["model"] == model and rows:
                runs.append(SavedRun(str(data["time"]), rows))
        except (OSError, ValueError, TypeError, KeyError):
            continue  # torn or foreign
    return runs


def _safe(model: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", model) or "model"
