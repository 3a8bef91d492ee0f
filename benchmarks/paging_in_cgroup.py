"""Run a model under a memory limit, paged and plainly mapped, and compare: speed, memory, text, forecast.

    python benchmarks/paging_in_cgroup.py MODEL --limit 500MB [--tokens 24] [--ctx 1024] [--plain-tokens 4]

Needs root and memory control groups of version 1 (/sys/fs/cgroup/memory). The page cache counts towards the limit, so a
mapped model that is larger is dropped and read again by the system: that is the run to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localinfer.storage import measure_storage, read_speed
from localinfer.units import parse_bytes

GROUPS = Path("/sys/fs/cgroup/memory")
PROMPT = "hello world this is a text about nothing"


@dataclass(frozen=True)
class Limited:
    """One run under a limit. Bytes; `peak_bytes` is what the group was charged at most, page cache included."""

    code: int
    answer: dict[str, Any]
    notes: str
    peak_bytes: int
    killed: int


def unavailable() -> str:
    """Why groups cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "not root"
    return "" if (GROUPS / "memory.limit_in_bytes").is_file() else "no memory control groups of version 1"


@contextmanager
def group(limit_bytes: int) -> Iterator[Path]:
    """A memory control group of its own; what runs in it must have ended when this closes."""
    folder = GROUPS / f"localinfer-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """A group goes once the last of its processes is gone."""
    for _ in range(50):
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return


def forget_file(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(path: Path) -> None:
    """Read the file once past our page cache and measure its disk then: the host of a virtual machine may have a cache
    of its own, and every pass but the first would find the file in it."""
    read_speed(path, 60.0)
    measure_storage(path, 1.0)


def run_limited(model: Path, limit_bytes: int, options: list[str], timeout_s: float = 140) -> Limited:
    """`localinfer run --json` within the limit."""
    forget_file(model)
    command = [
        sys.executable,
        "-m",
        "localinfer.cli.main",
        "run",
        str(model),
        "--raw",
        "-p",
        PROMPT,
        "--json",
        *options,
    ]
    with group(limit_bytes) as folder:
        procs = folder / "cgroup.procs"
        child = subprocess.Popen(
            ["/bin/sh", "-c", f'echo $$ > {procs}; exec "$@"', "sh", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        out, notes = child.communicate(timeout=timeout_s)
        peak = int((folder / "memory.max_usage_in_bytes").read_text())
        oom = dict(line.split() for line in (folder / "memory.oom_control").read_text().splitlines())
        answer = json.loads(out) if child.returncode == 0 else {}
        return Limited(child.returncode, answer, notes, peak, int(oom.get("oom_kill", 0)))


def forecast(model: Path, limit_bytes: int, ctx: int) -> dict[str, Any]:
    """What `fit` says within the limit."""
    with group(limit_bytes) as folder:
        command = [sys.executable, "-m", "localinfer.cli.main", "fit", str(model), "--ctx", str(ctx), "--json"]
        child = subprocess.run(
            ["/bin/sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "sh", *command],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(child.stdout)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--limit", default="500MB")
    parser.add_argument("--ctx", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--plain-tokens", type=int, default=8)
    args = parser.parse_args()
    if reason := unavailable():
        sys.exit(f"cannot make a memory control group: {reason}")
    limit = parse_bytes(args.limit)
    warm(args.model)
    plan = forecast(args.model, limit, args.ctx)
    print(f"fit: {plan['verdict']}, {plan['speed']['basis']}")
    common = ["--ctx", str(args.ctx), "--temp", "0", "--seed", "1", "--draft", "off"]
    paged = run_limited(args.model, limit, [*common, "-n", str(args.tokens)])
    report("paged", paged)
    plain = run_limited(args.model, limit, [*common, "-n", str(args.plain_tokens), "--weight-budget", "1TB", "--force"])
    report("plain", plain)
    n = min(len(paged.answer["tokens"]), len(plain.answer["tokens"]))
    same = paged.answer["tokens"][:n] == plain.answer["tokens"][:n]
    bound = plan["speed"]["decode_tok_s_bound"]
    tok_s = paged.answer["decode_tok_s"]
    print(
        f"same tokens: {same}; {tok_s / bound:.0%} of the forecast; {tok_s / plain.answer['decode_tok_s']:.2f} x plain"
    )


def report(name: str, run: Limited) -> None:
    if run.code:
        sys.exit(f"{name}: exit {run.code}, killed {run.killed}\n{run.notes}")
    a = run.answer
    paging = a["paging"] or {}
    hits = f", experts {paging['expert_hits'] / paging['expert_lookups']:.1%}" if paging.get("expert_lookups") else ""
    disk = f", disk {paging['read_bytes'] / paging['read_s'] / 1e9:.2f} GB/s" if paging.get("read_s") else ""
    print(
        f"{name}: {a['decode_tok_s']:.3f} tok/s, first token {a['ttft_s']:.2f} s, "
        f"plan {a['memory']['plan_bytes'] / 1e6:.0f} MB, group at most {run.peak_bytes / 1e6:.0f} MB, "
        f"killed {run.killed}{disk}{hits}"
    )


if __name__ == "__main__":
    main()
