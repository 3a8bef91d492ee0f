"""What the engine says, as the app says it: its hints name options of the command line, where the app has keys and
commands; its messages are the second half of a line (`error: ...`), here they stand alone."""

from __future__ import annotations

import re

from localinfer.errors import LocalinferError

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


def sentence(text: str) -> str:
    """`the engine was killed` -> `The engine was killed.` What begins or ends with a name, a path or a number is left
    as it is there."""
    first, last = text.split(" ", 1)[0], text.rsplit(" ", 1)[-1]
    if first.isalpha() and first.islower() and first not in _PROGRAMS:
        text = text[0].upper() + text[1:]
    return text + "." if last.strip("()").isalpha() and " " in text else text


_PROGRAMS = ("localinfer", "ollama")


def complaint(error: LocalinferError) -> str:
    """What went wrong, and below it what to do."""
    return "\n".join(sentence(text) for text in (error.message, in_app_words(error.hint)) if text)
