#!/usr/bin/env python3
"""What quantizing the KV cache costs in speed: each type against f16, turn by turn, at one depth.

    python benchmarks/kv_types.py MODEL.gguf --depth 2048 --kv q8_0,q4_0 --pairs 5

All types are loaded side by side and measured in turn, so that what else the machine does weighs on all of them; a
ratio is that of two measurements of the same round.
"""

from __future__ import annotations

import argparse
import statistics

import localinfer
from localinfer.bench import decode_rate, prefill_rate, random_ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--depth", type=int, default=2048)
    parser.add_argument("--kv", default="q8_0,q4_0")
    parser.add_argument("--pp", type=int, default=128, help="tokens to prefill at that depth (0: none)")
    parser.add_argument("--tg", type=int, default=24, help="tokens to decode at that depth (0: none)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    kinds = ["f16", *args.kv.split(",")]
    n_ctx = args.depth + args.pp + args.tg + 16
    engines = {kv: localinfer.load(args.model, ctx=n_ctx, kv=kv, threads=args.threads) for kv in kinds}
    ids = random_ids(engines["f16"], n_ctx)
    for name, n, rate in (("decode", args.tg, decode_rate), ("prefill", args.pp, prefill_rate)):
        if not n:
            continue
        rounds: list[dict[str, float]] = []
        for i in range(args.pairs + 1):  # the first one warms up
            turn = kinds if i % 2 else kinds[::-1]
            rounds.append({kv: rate(engines[kv], ids, args.depth, n) for kv in turn})
        for kv in kinds[1:]:
            ratios = [found[kv] / found["f16"] for found in rounds[1:]]
            print(
                f"{name:8}{n:4} @ {args.depth}: {kv} {statistics.median(ratios):.2f} x f16"
                f" ({min(ratios):.2f} .. {max(ratios):.2f}), f16"
                f" {statistics.median(found['f16'] for found in rounds[1:]):.1f} tok/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
