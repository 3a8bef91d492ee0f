"""Cut a text where no merge can reach across: the parts then merge as they would in the whole.

Merging only ever joins neighbours into a string that some token (or merge rule) spells. If no token has the
characters `ab` side by side, no merge ever crosses a border between an a and a b, so what happens left of it is
independent of what happens right of it: the queue's order within each side is the same with or without the other.

Tokens that hold white space (`▁`) inside, after another character, are rare. So one pattern cuts before each run of
`▁`, unless the character before it is one of those seen before a `▁` in some token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import add

SPACE = "▁"


def space_splitter(before_space: Iterable[str]) -> Callable[[str], list[str]]:
    """A function that cuts before runs of `▁`, but not after the characters `before_space`."""
    glue = "".join(re.escape(char) for char in sorted(set(before_space) - {SPACE}))
    if not glue:
        return re.compile(f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+").findall
    chunk = f"(?:{SPACE}+[^{SPACE}]*|[^{SPACE}]+)(?:(?<=[{glue}]){SPACE}+[^{SPACE}]*)*"
    return re.compile(chunk).findall


def characters_before_space(texts: Iterable[str]) -> set[str]:
    """Every character that some text of `texts` has right before a `▁` (`▁` itself aside)."""
    return set(re.findall(f"([^\0{SPACE}])(?={SPACE})", "\0".join(texts), re.DOTALL))


class PairSplitter:
    """Cuts long strings between characters that no token has side by side. The pairs are read at the first use."""

    def __init__(self, pairs: Callable[[], set[str]]) -> None:
        self._read_pairs = pairs
        self._pairs: set[str] | None = None

    def split(self, text: str) -> list[str]:
        """The parts of `text`, in order."""
        if self._pairs is None:
            self._pairs = self._read_pairs()
        pairs = self._pairs
        parts = []
        start = 0
        for i, pair in enumerate(map(add, text, text[1:]), 1):
            if pair not in pairs:
                parts.append(text[start:i])
                start = i
        parts.append(text[start:])
        return parts


def pairs_in(texts: Iterable[str]) -> set[str]:
    """All two-character strings inside `texts`."""
    pairs: set[str] = set()
    for text in texts:
        pairs.update(map(add, text, text[1:]))
    return pairs
