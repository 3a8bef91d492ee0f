"""Where in a conversation the last few tokens stood before: an index that grows and shrinks with it.

For each position the position before it with the same last SHORT tokens, and with the same last LONG ones, as chains
through two arrays; a dictionary holds each chain's head. A new token costs two dictionary writes, a dropped one undoes
them, and a search walks a bounded number of links, so its time does not grow with the text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum

from localinfer.records import dataclass

SHORT, LONG = 2, 4  # tokens that must agree for a place to be looked at
LINKS = {LONG: 12, SHORT: 4}  # places looked at, newest first
MAX_MATCH = 32  # longer matches are as good as this one
RIVALS = 4  # other places whose continuations are compared with the chosen one
NOWHERE = -1
BYTES_PER_TOKEN = 200  # measured: two links, two dictionary slots with their keys, the token itself


class Support(IntEnum):
    """What the other places with the same last tokens say of a guess. It tells more than the length of the match."""

    ALONE = 0  # there is no other place, or those that agreed so far have parted earlier
    AGREED = 1
    DISPUTED = 2


@dataclass(frozen=True)
class Match:
    """The last `length` tokens also stand before `position`: what follows there may follow here.

    `rivals`: further places, of which only the last SHORT or LONG tokens were compared.
    """

    position: int
    length: int
    rivals: tuple[int, ...] = ()


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
        from localinfer.kv.prefix import common_prefix  # `fit` reads this file for a constant and must load quickly

        common = common_prefix(self.tokens, tokens)
        self.truncate(common)
        for token in tokens[common:]:
            self.extend(token)

    def longest_match(self) -> Match | None:
        """The longest match among the newest places; of equals the newest. None below SHORT tokens."""
        for n in (LONG, SHORT):
            places = self._places(n)
            if places:
                best, length = places[0], 0
                for place in places:
                    found = self._match_length(place, length)
                    if found > length:
                        best, length = place, found
                    if length == MAX_MATCH:
                        break
                rivals = [place for place in places[: RIVALS + 1] if place != best]
                return Match(best, length, tuple(rivals[:RIVALS]))
        return None

    def _places(self, n: int) -> list[int]:
        """The newest places, LINKS[n] links at most, where the last n tokens stood before."""
        links, tokens = self._links[n], self.tokens
        last = tokens[-n:]
        place = links[-1]
        places = []
        for _ in range(LINKS[n]):
            if place == NOWHERE:
                break
            if tokens[place - n : place] == last:  # keys may collide
                places.append(place)
            place = links[place]
        return places

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

    def support(self, match: Match, guesses: Sequence[int]) -> list[Support]:
        """For each guess what the rivals say, of which only those count that said the guesses before it."""
        tokens, rivals = self.tokens, list(match.rivals)
        found: list[Support] = []
        for i, guess in enumerate(guesses):
            rivals = [place for place in rivals if place + i < len(tokens)]
            if not rivals:
                break
            agreeing = [place for place in rivals if tokens[place + i] == guess]
            found.append(Support.AGREED if len(agreeing) == len(rivals) else Support.DISPUTED)
            rivals = agreeing
        return found + [Support.ALONE] * (len(guesses) - len(found))
