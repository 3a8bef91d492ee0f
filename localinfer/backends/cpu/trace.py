"""Where the time goes, by operation: LOCALINFER_TRACE=1 prints a table to stderr when the backend closes.

Traced, every instruction is a job of its own, so waits between instructions count too and the whole is a little slower.
"""

from __future__ import annotations

import ctypes
import os
import sys

from localinfer.backends.cpu import structs
from localinfer.backends.cpu.lib import Library


def start_if_asked(lib: Library) -> bool:
    on = os.environ.get("LOCALINFER_TRACE", "0") not in ("", "0")
    if on:
        lib.li_trace(1)
    return on


def by_operation(lib: Library) -> dict[str, tuple[int, int]]:
    """Nanoseconds and calls of each operation since tracing began."""
    n = len(structs.OP_NAMES)
    ns, calls = (ctypes.c_int64 * n)(), (ctypes.c_int64 * n)()
    lib.li_trace_read(ns, calls)
    return {name: (ns[i], calls[i]) for i, name in enumerate(structs.OP_NAMES) if calls[i]}


def print_table(lib: Library) -> None:
    times = by_operation(lib)
    total = sum(ns for ns, _ in times.values()) or 1
    print(f"{'operation':<16} {'calls':>8} {'ms':>10} {'us/call':>9} {'share':>6}", file=sys.stderr)
    for name, (ns, calls) in sorted(times.items(), key=lambda item: -item[1][0]):
        row = f"{name:<16} {calls:>8} {ns / 1e6:>10.2f} {ns / 1e3 / calls:>9.1f} {ns / total:>6.1%}"
        print(row, file=sys.stderr)
