#!/usr/bin/env python3
"""Memory that a loaded model takes beyond the pages of its file (Linux).

    python benchmarks/private_memory.py MODEL.gguf --ctx 4096

Loads, fills the context, decodes, and reads /proc/self/smaps_rollup: file pages are shared with every other program and
the system drops them at will, the rest is ours.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import localinfer
from localinfer.bench import decode_rate, random_ids
from localinfer.planner.speed import kv_read_bytes


def resident() -> tuple[int, int]:
    """Bytes of this process that are in memory: all of them, and those that no file holds."""
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    sizes = {fields[0].rstrip(":"): int(fields[1]) * 1024 for fields in lines}
    return sizes["Rss"], sizes["Anonymous"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--kv", default="f16")
    args = parser.parse_args()
    engine = localinfer.load(args.model, ctx=args.ctx, kv=args.kv)
    loaded = resident()
    ids = random_ids(engine, args.ctx - 32)
    decode_rate(engine, ids, len(ids), 16)
    total, own = resident()
    kv = kv_read_bytes(engine.plan, args.ctx)
    print(f"loaded: {loaded[0] / 1e6:.0f} MB resident, {loaded[1] / 1e6:.0f} MB of it not pages of a file")
    print(f"context of {args.ctx} filled: {total / 1e6:.0f} MB resident, {own / 1e6:.0f} MB of it not pages of a file")
    print(f"KV at full context {kv / 1e6:.0f} MB; everything else {(own - kv) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
