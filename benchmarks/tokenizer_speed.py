#!/usr/bin/env python3
"""How fast each tokenizer encodes: prose, nothing cached, and texts without a space at two lengths.

    python benchmarks/tokenizer_speed.py FILE.gguf... [--text PROSE.txt] [--reps 3]

Prose is a megabyte of what Python's own `help()` knows and its library's docstrings (not all ASCII), or the first
megabyte of --text. Seconds are the processor's, so that other programs do not count. Each repeat builds a tokenizer
anew, so that every word is new to it; the fastest counts. Without spaces: random letters of 1 MB and of a quarter of
that; linear means that the time a byte costs is the same.
"""

from __future__ import annotations

import argparse
import ast
import pydoc_data.topics
import random
import re
import string
import time
from pathlib import Path

from localinfer.backends.cpu.merge import open_merge_table
from localinfer.formats.gguf import GGUFFile
from localinfer.models.tokenizer import Tokenizer
from localinfer.models.tokenizer.merging import OpenTable

MB = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--python", action="store_true", help="without the compiled kernels")
    args = parser.parse_args()
    open_table = None if args.python else open_merge_table
    texts = {"prose": prose(args.text), "a quarter": letters(MB // 4), "no spaces": letters(MB)}
    print(f"{'MB/s':34}" + "".join(f"{name:>11}" for name in texts))
    for path in args.files:
        speeds = [max(cold_speed(path, text, open_table) for _ in range(args.reps)) for text in texts.values()]
        print(f"{Path(path).stem:34}" + "".join(f"{speed:11.2f}" for speed in speeds), flush=True)


def prose(path: Path | None) -> str:
    if path:
        return path.read_text("utf-8")[:MB]
    sources = (file.read_text("utf-8", "ignore") for file in sorted(Path(ast.__file__).parent.glob("*.py")))
    docs = ("\n".join(re.findall(r'"{3}(.*?)"{3}', source, re.DOTALL)) for source in sources)
    return "\n".join([*pydoc_data.topics.topics.values(), *docs])[:MB]


def letters(n: int) -> str:
    return "".join(random.Random(1).choices(string.ascii_letters, k=n))


def cold_speed(path: str, text: str, open_table: OpenTable | None) -> float:
    """MB of UTF-8 a second, by a tokenizer that has seen nothing yet but one word."""
    with GGUFFile.open(path) as f:
        tokenizer = Tokenizer.from_gguf(f, open_table)
    tokenizer.encode("a é")  # patterns are compiled at the first use
    start = time.process_time()
    tokenizer.encode(text)
    return len(text.encode()) / MB / (time.process_time() - start)


if __name__ == "__main__":
    main()
