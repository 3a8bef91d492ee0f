"""The engine's hints name options of the command line; in the app the same is done by keys and commands."""

from __future__ import annotations

import re

_WORDS = (
    (re.compile(r"--ctx (\d+)"), r"a context of \1 (/reload \1)"),
    (re.compile(r"a smaller --ctx or --kv q8_0"), "a smaller context or KV type q8_0 (F2)"),
    (re.compile(r"--kv ([\w/]*\w)"), r"KV type \1 (F2)"),
    (re.compile(r"in a chat --context-full drop: the oldest turns are left out"), "dropping the oldest turns (F2)"),
    (re.compile(r"--backend (\w+)"), r"device \1 (F2)"),
    (re.compile(r"`localinfer bench`"), "/bench"),
    (re.compile(r"--ctx\b"), "context (F2)"),
    (re.compile(r"--kv\b"), "KV type (F2)"),
    (re.compile(r"--backend\b"), "device (F2)"),
    (re.compile(r"--weight-budget\b"), "memory for weights (F2)"),
)  # fmt: skip


def in_app_words(hint: str) -> str:
    """`--ctx 8192, a shorter text` -> `a context of 8192 (/reload 8192), a shorter text`."""
    for pattern, words in _WORDS:
        hint = pattern.sub(words, hint)
    return hint
