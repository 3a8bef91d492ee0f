"""The honesty ledger: what a plan predicted against what was then measured, kept per machine.

One JSON object a line, appended with a single write, so two processes never mix. The file is cut to its newest half
when it grows past MAX_BYTES. What it teaches: the runtime row, which is the one term that no formula gives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from localinfer.paths import ledger_file, make_parent
from localinfer.planner.context_limit import group_layers, kv_bytes_at
from localinfer.planner.plan import Plan
from localinfer.planner.platforms import RULES
from localinfer.records import dataclass
from localinfer.state_file import replace_file

MAX_BYTES = 512 * 1024
MOST_LEARNED = 4
LEARN_FROM = 8  # newest entries of a machine and platform that the runtime row is learned from
TOLERANCE = 0.05  # of the peak
TOLERANCE_BYTES = 40 * 2**20


@dataclass(frozen=True)
class Measured:
    """What was measured after a load and a turn. None where a platform does not tell."""

    weights: int | None = None  # bytes of tensor data that are mapped or held
    kv: int | None = None  # bytes the cache allocated
    scratch: int | None = None
    anonymous_peak: int | None = None  # without mapped file pages
    file_peak: int | None = None  # mapped file pages
    device_peak: int | None = None  # the GPU library's own peak
    decode_bytes_s: int | None = None  # weights and KV that plain decode steps read, over their time


@dataclass(frozen=True)
class Used:
    """How much of what a plan provides for was in use when it was measured: memory is taken when it is touched."""

    context: int  # tokens in the cache
    chunk: int  # the longest prefill step; 0: not known, the plan's own
    drafts: int  # tokens guessed so far; 0: no more than one row of logits at a time
    kv_bytes: int | None = None  # of the cache and its checkpoints; None: not known, what `context` needs


@dataclass(frozen=True)
class Entry:
    """One load: predicted bytes by part, and measured ones."""

    when: str
    machine: str
    platform: str
    model: str
    quant: str
    weight_type: str  # of most weights
    ctx: int
    kv_types: str
    used: Used
    # Of the plan: its parts, `total` (without what a GPU library keeps of freed buffers, which is not in its peak),
    # `anonymous` (all but weights), `baseline`, `unused`.
    predicted: Mapping[str, int]
    measured: Measured

    @property
    def predicted_peak(self) -> int:
        """Of what the process allocates itself, as far as it was used; on a GPU of all."""
        if self.measured.anonymous_peak is None:
            return self.predicted["total"]
        return self.predicted["anonymous"] - self.predicted["unused"]

    @property
    def measured_peak(self) -> int | None:
        m = self.measured
        return m.anonymous_peak if m.anonymous_peak is not None else m.device_peak

    @property
    def error_bytes(self) -> int | None:
        """Measured less predicted peak; positive: the plan promised too much."""
        return None if self.measured_peak is None else self.measured_peak - self.predicted_peak

    @property
    def within_tolerance(self) -> bool | None:
        """Off by no more than 5 % or 40 MiB, whichever is larger; None where nothing was measured."""
        if self.error_bytes is None or self.measured_peak is None:
            return None
        return abs(self.error_bytes) <= max(TOLERANCE_BYTES, TOLERANCE * self.measured_peak)


def record(plan: Plan, measured: Measured, machine: str, when: str, used: Used, path: Path | None = None) -> Entry:
    """Append what became of a plan. `when` is an ISO date and time. OSError where the file cannot be written."""
    entry = Entry(
        when=when,
        machine=machine,
        platform=plan.budget.platform,
        model=plan.model.name,
        quant=plan.model.quant,
        weight_type=plan.model.weight_type,
        ctx=plan.ask.ctx,
        kv_types=plan.ask.kv_name,
        used=used,
        predicted={
            **plan.parts,
            "total": plan.total - plan.cache_bytes,
            "anonymous": plan.anonymous_bytes,
            "baseline": plan.baseline_bytes,
            "unused": unused_bytes(plan, used),
        },
        measured=measured,
    )
    from dataclasses import asdict  # who reads the ledger need not load it

    _append(path or ledger_file(), json.dumps(asdict(entry), separators=(",", ":")))
    return entry


def read(path: Path | None = None) -> list[Entry]:
    """All entries, oldest first. Lines that make no sense (a crash, another version) are passed over."""
    path = path or ledger_file()
    try:
        now = path.stat()
        return list(_entries(path, now.st_mtime_ns, now.st_size))
    except OSError:
        return []


@lru_cache(maxsize=1)
def _entries(path: Path, mtime_ns: int, size: int) -> tuple[Entry, ...]:
    """Of the file as it was then: a plan asks it for the runtime row and for the speed."""
    lines = path.read_text("utf-8", "replace").splitlines()
    return tuple(entry for line in lines if (entry := _parse(line)) is not None)


def learned_runtime_bytes(machine: str, platform: str, path: Path | None = None) -> int | None:
    """The runtime baseline as measured here: the median of what peaks had beyond all other terms (of two, the larger).

    None: nothing to go by. Never more than MOST_LEARNED times the platform's guess: a process that holds more has
    other things in it than a model.
    """
    beyond = [
        entry.measured_peak - (entry.predicted_peak - entry.predicted["baseline"])
        for entry in read(path)
        if (entry.machine, entry.platform) == (machine, platform) and entry.measured_peak is not None
    ]
    newest = sorted(beyond[-LEARN_FROM:])
    most = MOST_LEARNED * RULES[platform].runtime_bytes
    return min(most, max(0, newest[len(newest) // 2])) if newest else None


def decode_speeds(machine: str, platform: str, path: Path | None = None) -> dict[str, float]:
    """Bytes a second that the first answers of loads here were decoded with, by weight type: the median of the newest
    (of two, the smaller)."""
    found: dict[str, list[int]] = {}
    for entry in read(path):
        if (entry.machine, entry.platform) == (machine, platform) and entry.measured.decode_bytes_s:
            found.setdefault(entry.weight_type, []).append(entry.measured.decode_bytes_s)
    newest = {name: sorted(speeds[-LEARN_FROM:]) for name, speeds in found.items()}
    return {name: float(speeds[(len(speeds) - 1) // 2]) for name, speeds in newest.items()}


def unused_bytes(plan: Plan, used: Used) -> int:
    """Bytes of the plan that were never touched: cache pages, activations of shorter chunks, logits of no drafts."""
    if plan.model.config is None:
        return 0
    touched = kv_bytes_used(plan, used.context) if used.kv_bytes is None else used.kv_bytes
    unused = plan.parts["kv"] + plan.checkpoint_bytes - touched
    unused += plan.parts["draft"] * (plan.ask.ctx - min(plan.ask.ctx, used.context)) // plan.ask.ctx
    if 0 < used.chunk < plan.ask.chunk and plan.scratch:
        by_chunk = plan.scratch.activations + plan.scratch.prepared + plan.scratch.experts
        unused += by_chunk * (plan.ask.chunk - used.chunk) // plan.ask.chunk
    return unused if used.drafts else unused + plan.ask.draft * plan.model.config.n_vocab * 4


def kv_bytes_used(plan: Plan, n_tokens: int) -> int:
    """Bytes of the plan's KV pages that n_tokens of context have written."""
    if plan.kv is None:
        return 0
    groups = group_layers(plan.kv)
    return min(plan.parts["kv"], plan.ask.requests * kv_bytes_at(groups, min(n_tokens, plan.ask.ctx), plan.ask.chunk))


def _append(path: Path, line: str) -> None:
    make_parent(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
        size = os.fstat(handle).st_size
    finally:
        os.close(handle)
    if size > MAX_BYTES:
        _keep_newest_half(path)


def _keep_newest_half(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    replace_file(path, b"".join(lines[len(lines) // 2 :]))


def _parse(line: str) -> Entry | None:
    try:
        fields: dict[str, Any] = json.loads(line)
        entry = Entry(
            **{"weight_type": "", **fields, "measured": Measured(**fields["measured"]), "used": Used(**fields["used"])}
        )
        sound = all(isinstance(entry.predicted[key], int) for key in ("baseline", "total", "anonymous", "unused"))
        return entry if sound and all(v is None or isinstance(v, int) for v in fields["measured"].values()) else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
