"""Where in a conversation the last few tokens stood before: an index that grows and shrinks with it.

For each position the position before it with the same last SHORT tokens, and with the same last LONG ones, as chains
through two arrays; a dictionary holds each chain's head. A new token costs two dictionary writes, a dropped one undoes
them, and a search walks a bounded number of links, so its time does not grow with the text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

SHORT, LONG = 2, 4  # tokens that must agree for a place to be looked at
LINKS = {LONG: 12, SHORT: 4}  # places looked at, newest first
MAX_MATCH = 32  # longer matches are as good as this one
NOWHERE = -1
BYTES_PER_TOKEN = 200  # measured: two links, two dictionary slots with their keys, the token itself


@dataclass(frozen=True)
class Match:
    """The last `length` tokens also stand before `position`: what follows there may follow here."""

    position: int
    length: int


class NgramIndex:
    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._heads: dict[int, dict[int, int]] = {SHORT: {}, LONG: {}}
        # links[n][p]: the newest position before p whose last n tokens are those before p
        self._links = {SHORT: array("i", [NOWHERE]), LONG: array("i", [NOWHERE])}

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, token: int) -> None:
        self.tokens.append(token)
        end = len(self.tokens)
        for n, heads in self._heads.items():
            if end < n:
                self._links[n].append(NOWHERE)
                continue
            key = hash(tuple(self.tokens[end - n :]))
            self._links[n].append(heads.get(key, NOWHERE))
            heads[key] = end

    def truncate(self, length: int) -> None:
        """Forget all tokens after `length`, exactly as if they had never come."""
        while len(self.tokens) > length:
            end = len(self.tokens)
            for n, heads in self._heads.items():
                before = self._links[n].pop()
                if end >= n:
                    key = hash(tuple(self.tokens[end - n :]))
                    if before == NOWHERE:
                        del heads[key]
                    else:
                        heads[key] = before
            self.tokens.pop()

    def sync(self, tokens: Sequence[int]) -> None:
        """Hold exactly these tokens, keeping what is common."""
        known = self.tokens
        common = next((i for i, (a, b) in enumerate(zip(known, tokens, strict=False)) if a != b), None)
        common = min(len(known), len(tokens)) if common is None else common
        self.truncate(common)
        for token in tokens[common:]:
            self.extend(token)

    def longest_match(self) -> Match | None:
        """The longest match among the newest places; of equals the newest. None below SHORT tokens."""
        best: Match | None = None
        for n in (LONG, SHORT):
            place = self._links[n][-1]
            for _ in range(LINKS[n]):
                if place == NOWHERE:
                    break
                length = self._match_length(place, best.length if best else 0)
                if length >= n and (best is None or length > best.length):
                    best = Match(place, length)
                    if length == MAX_MATCH:
                        return best
                place = self._links[n][place]
            if best:
                return best
        return None

    def _match_length(self, place: int, beat: int) -> int:
        """Tokens before `place` that equal the last ones; 0 where they are not more than `beat`."""
        tokens, end = self.tokens, len(self.tokens)
        if beat >= place or tokens[place - 1 - beat] != tokens[end - 1 - beat]:
            return 0
        most = min(place, MAX_MATCH)
        n = 0
        while n < most and tokens[place - 1 - n] == tokens[end - 1 - n]:
            n += 1
        return n

    def continuation(self, match: Match, n: int) -> list[int]:
        """The n tokens that follow the match; where they reach the end of the text, it repeats itself."""
        found = self.tokens[match.position : match.position + n]
        period = len(self.tokens) - match.position
        while len(found) < n:
            found.append(found[len(found) - period])
        return found
