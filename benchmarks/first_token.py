"""How long a cold process takes to its first token: `localinfer run` on a short prompt, the file in the page cache.

    python -m benchmarks.first_token MODEL.gguf [--runs 10] [--chat] [--against PATH]

The clock starts before the process does and stops at the first byte of the answer. `--against`: a second `localinfer`,
run in turns with this one. `bare interpreter` is `python -c pass`, for comparison with other machines.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.app_start import bare_s, print_times

PROMPT = "Name the largest city of each of these countries"  # 10 tokens for SmolLM2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--chat", action="store_true", help="through the chat template instead of as plain text")
    parser.add_argument("--against", metavar="PATH", help="another localinfer")
    args = parser.parse_args()
    programs = [str(Path(sys.executable).with_name("localinfer")), *([args.against] if args.against else [])]
    times: dict[str, list[float]] = {program: [] for program in programs}
    for run in range(args.runs + 1):  # the first one warms the caches
        for program in programs:
            seconds = first_token_s(program, args.model, args.chat)
            if run:
                times[program].append(seconds)
    for program, seconds in times.items():
        print_times(program, seconds)
    print_times("bare interpreter", [bare_s() for _ in range(args.runs)])


def first_token_s(program: str, model: str, chat: bool) -> float:
    command = [program, "run", model, *([] if chat else ["--raw"]), "-p", PROMPT, "--temp", "0", "-n", "1"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        if not process.stdout.read(1):
            sys.exit(f"{' '.join(command)}: no answer")
        seconds = time.perf_counter() - start
        process.stdout.read()
    return seconds


if __name__ == "__main__":
    main()
