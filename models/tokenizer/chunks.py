"""Cut a text where no merge can reach across: the parts then merge as they would in the whole.

Merging only ever joins neighbours into a token (or what a merge rule spells). If no token that merging can make has
the characters `ab` side by side, no merge ever crosses a border between an a and a b. What happens left of it is then
independent of what happens right of it: the order of merges within each side is the same with or without the other.

A token longer than one character is made from two parts, each a token or one character. Tokens without such a pair of
parts (`<unused7>`, `</table>`, `<0x0A>` in most vocabularies) are never made, so their borders do not count.

SentencePiece vocabularies do not mix `▁` or ASCII punctuation into words, with some exceptions. Texts are cut at all
these borders; the exceptions (`glue`: pairs of characters) are found in each vocabulary, and parts that meet at one are
joined again.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from operator import add

SPACE = "▁"
_MARKS = "".join(chr(code) for code in range(1, 0x80) if not chr(code).isalnum())
_MARK_CLASS = "".join(map(re.escape, _MARKS))
_BORDER = re.compile(
    f"[^\0{SPACE}{_MARK_CLASS}](?=[{SPACE}{_MARK_CLASS}])|[{_MARK_CLASS}](?=[^\0{_MARK_CLASS}])", re.DOTALL
)


class Chunker:
    """Cuts before `▁` and between words and ASCII punctuation. `tokens` are what merging may make, `parts` what it may
    make them from (beside single characters)."""

    def __init__(self, tokens: Iterable[str], parts: Container[str]) -> None:
        made = (token for token in _with_borders("\0".join(tokens)) if _can_be_made(token, parts))
        self.glue = {pair for token in made for pair in _borders(token)}
        self._has_glue = re.compile(_pairs_pattern(self.glue), re.DOTALL).search if self.glue else None
        self._runs: frozenset[str] = frozenset()
        self._find = re.compile(_chunk_pattern({}), re.DOTALL).findall

    def with_runs(self, runs: Mapping[str, tuple[int, int]]) -> Callable[[str], list[str]]:
        """Another `split`: a run of one of these characters, so many times at least and at most, is a chunk of its
        own, whatever stands beside it."""
        other = copy.copy(self)
        other._runs = frozenset(char * n for char, (least, most) in runs.items() for n in range(least, most + 1))
        other._find = re.compile(_chunk_pattern(runs), re.DOTALL).findall
        return other.split

    def split(self, text: str) -> list[str]:
        """The chunks of `text`, in order."""
        chunks = self._find(text)
        if self._has_glue is None or len(chunks) < 2 or not self._has_glue(text):
            return chunks
        joined = [chunks[0]]
        for chunk in chunks[1:]:
            may_join = chunk not in self._runs and joined[-1] not in self._runs
            if may_join and joined[-1][-1] + chunk[0] in self.glue:
                joined[-1] += chunk
            else:
                joined.append(chunk)
        return joined


def _chunk_pattern(runs: Mapping[str, tuple[int, int]]) -> str:
    marks = "".join(re.escape(mark) for mark in _MARKS if mark not in runs)
    own = [f"{re.escape(char)}{{{least},{most}}}" for char, (least, most) in sorted(runs.items())]
    word = f"[^{SPACE}{_MARK_CLASS}]+|[{marks}]+"
    space = f"{SPACE}?" if SPACE in runs else f"{SPACE}*"
    # A run's character that is too few for a run stands alone.
    rest = [f"[{re.escape(char)}]" for char in sorted(runs)]
    return "|".join([*own, f"{space}(?:{word})", *rest, f"{SPACE}+"])


def _with_borders(joined: str) -> set[str]:
    """The tokens of a \\0-joined text at whose inside texts would be cut."""
    found = set()
    position = 0
    while match := _BORDER.search(joined, position):
        start = joined.rfind("\0", 0, match.start()) + 1
        position = joined.find("\0", match.start())
        if position < 0:
            position = len(joined)
        found.add(joined[start:position])
    return found


def _borders(token: str) -> list[str]:
    """The pairs of characters at which `token` would be cut."""
    return [token[match.start() : match.start() + 2] for match in _BORDER.finditer(token)]


def _can_be_made(token: str, parts: Container[str]) -> bool:
    """Is there a split of `token` into two strings that are parts or single characters?"""
    n = len(token)
    return any((i == 1 or token[:i] in parts) and (i == n - 1 or token[i:] in parts) for i in range(1, n))


def _pairs_pattern(pairs: Collection[str]) -> str:
    """A pattern that finds any of `pairs`: `[ab](?=[xy])|...`."""
    rights: dict[str, str] = {}
    for pair in sorted(pairs):
        rights[pair[0]] = rights.get(pair[0], "") + re.escape(pair[1])
    lefts: dict[str, str] = {}
    for left, right in rights.items():
        lefts[right] = lefts.get(right, "") + re.escape(left)
    return "|".join(f"[{left}](?=[{right}])" for right, left in lefts.items())


class PairSplitter:
    """Cuts long strings between characters that no merge can join."""

    def __init__(self, joined: Callable[[], str], between: str = "") -> None:
        """Characters a and b may join where `a + between + b` occurs in the joined tokens or rules."""
        self._may_join = _Pairs(joined, between)

    def split(self, text: str) -> list[str]:
        """The parts of `text`, in order."""
        may_join = self._may_join
        parts = []
        start = 0
        for i, pair in enumerate(map(add, text, text[1:]), 1):
            if not may_join[pair]:
                parts.append(text[start:i])
                start = i
        parts.append(text[start:])
        return parts


class _Pairs(dict[str, bool]):
    """Pair -> does it occur? Looked up one by one at first: reading all pairs of a large vocabulary takes half a
    second, and a line of dashes asks for one."""

    MOST_SEARCHES = 400

    def __init__(self, joined: Callable[[], str], between: str) -> None:
        super().__init__()
        self._read, self._between = joined, between
        self._joined: str | None = None
        self._complete = False

    def __missing__(self, pair: str) -> bool:
        if self._joined is None:
            self._joined = self._read()
        if len(self) >= self.MOST_SEARCHES and not self._complete:
            self._complete = True
            self.update(dict.fromkeys(_all_pairs(self._joined, self._between), True))
            return self[pair]
        found = self[pair] = not self._complete and self._between.join(pair) in self._joined
        return found


def _all_pairs(joined: str, between: str) -> Iterable[str]:
    if not between:
        return set(map(add, joined, joined[1:]))
    return {a + b for a, b in re.findall(f"(?<=(.)){re.escape(between)}(?=(.))", joined, re.DOTALL)}
