#!/usr/bin/env python3
"""How fast each tokenizer encodes: prose, nothing cached, and texts without a space at two lengths.

    python benchmarks/tokenizer_speed.py FILE.gguf... [--text PROSE.txt] [--reps 3]

Seconds of the processor, so that other programs do not count. Prose is the text of Python's own `help()` topics (466
KB; some characters are not ASCII) or the first megabyte of --text. Each repeat builds a tokenizer anew, so that every
word is new to it; the fastest counts. Without spaces: random letters of 1 MB and of a quarter of that; linear means
that the time a byte costs is the same.
"""

from __future__ import annotations

import argparse
import pydoc_data.topics
import random
import string
import time
from pathlib import Path

from localinfer.formats.gguf import GGUFFile
from localinfer.models.tokenizer import Tokenizer

MB = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--reps", type=int, default=3)
    args = parser.parse_args()
    texts = {"prose": prose(args.text), "a quarter": letters(MB // 4), "no spaces": letters(MB)}
    print(f"{'MB/s':34}" + "".join(f"{name:>11}" for name in texts))
    for path in args.files:
        speeds = [max(cold_speed(path, text) for _ in range(args.reps)) for text in texts.values()]
        print(f"{Path(path).stem:34}" + "".join(f"{speed:11.2f}" for speed in speeds), flush=True)


def prose(path: Path | None) -> str:
    text = path.read_text("utf-8") if path else "\n".join(pydoc_data.topics.topics.values())
    return text[:MB]


def letters(n: int) -> str:
    return "".join(random.Random(1).choices(string.ascii_letters, k=n))


def cold_speed(path: str, text: str) -> float:
    """MB of UTF-8 a second, by a tokenizer that has seen nothing yet but one word."""
    with GGUFFile.open(path) as f:
        tokenizer = Tokenizer.from_gguf(f)
    tokenizer.encode("a é")  # patterns are compiled at the first use
    start = time.process_time()
    tokenizer.encode(text)
    return len(text.encode()) / MB / (time.process_time() - start)


if __name__ == "__main__":
    main()
