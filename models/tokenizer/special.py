"""Cut a text at its special tokens (`<|im_start|>`, `<bos>`, Gemma's newline runs, ...).

The rule is llama.cpp's: longer tokens first, anywhere in the text (length in UTF-8 bytes; of equals the lower id), then
shorter ones in what is left. Scanning once from the left and taking the longest token at each place gives the same
result unless a token that comes first by the rule starts inside one found before it; where that may be, the rule runs
as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from localinfer.records import dataclass

Piece = str | int  # plain text, or the id of a special token


@dataclass(frozen=True)
class SpecialToken:
    """`strips_left` / `strips_right`: white space beside the token belongs to it."""

    text: str
    id: int
    strips_left: bool = False
    strips_right: bool = False


class SpecialMatcher:
    """Finds the given tokens in texts. Building costs a few milliseconds for thousands of tokens."""

    def __init__(self, tokens: list[SpecialToken]) -> None:
        self._by_text = {token.text: token for token in tokens}
        self._strips = any(token.strips_left or token.strips_right for token in tokens)
        runs = whole_runs(self._by_text)
        lengths: dict[str, set[int]] = {}
        for text in self._by_text:
            if text[0] not in runs:
                lengths.setdefault(text[:2], set()).add(len(text))
        # Two characters tell nearly every place where no token starts: prose has many '<' and ' ', few '<|' and '  '.
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        # A run of one character (Gemma's newlines and tabs) is matched whole: it is a token as it stands.
        parts = [f"{re.escape(char)}{{{least},{most}}}" for char, (least, most) in sorted(runs.items())]
        self._runs = frozenset(runs)
        self._starts = re.compile("|".join([*parts, *_head_patterns(lengths)]), re.DOTALL) if tokens else None
        self._overlapped: dict[str, bool] = {}

    def split(self, text: str) -> list[Piece]:
        """`text` as plain pieces and special ids, in order, without empty pieces."""
        if self._starts is None or not text:
            return [text] if text else []
        if self._strips:
            return self._split_by_rule(text)
        pieces: list[Piece] = []
        end = position = 0
        search = self._starts.search
        while match := search(text, position):
            start = match.start()
            token = self._longest_at(text, start, match[0])
            if token is None:
                position = start + 1
                continue
            if self._may_be_overlapped(token.text):
                return self._split_by_rule(text)
            if start > end:
                pieces.append(text[end:start])
            pieces.append(token.id)
            end = position = start + len(token.text)
        if end < len(text):
            pieces.append(text[end:])
        return pieces

    def _longest_at(self, text: str, start: int, head: str) -> SpecialToken | None:
        return next(self._all_at(text, start, head), None)

    def _all_at(self, text: str, start: int, head: str) -> Iterator[SpecialToken]:
        """All tokens at `start`, longest first; `head` is what the start pattern saw there: a run, or 1 to 2
        characters."""
        if head[0] in self._runs:
            yield from (self._by_text[head[:n]] for n in range(len(head), 0, -1) if head[:n] in self._by_text)
            return
        for key in (head, head[:1]) if len(head) == 2 else (head,):
            for length in self._lengths.get(key, ()):
                token = self._by_text.get(text[start : start + length])
                if token is not None:
                    yield token

    def _may_be_overlapped(self, text: str) -> bool:
        """Does some other token, as long or longer, start with a proper suffix of `text`? Runs of one character are
        harmless among themselves: where a longer run starts inside a shorter one, it also starts with it."""
        known = self._overlapped.get(text)
        if known is None:
            suffixes = tuple(text[i:] for i in range(1, len(text)))
            size = _n_bytes(text)
            known = self._overlapped[text] = any(
                other.startswith(suffixes) and _n_bytes(other) >= size and other != text and not _same_runs(text, other)
                for other in self._by_text
            )
        return known

    def _split_by_rule(self, text: str) -> list[Piece]:
        found = [
            (-_n_bytes(token.text), token.id, start, token)
            for start, head in self._heads(text)
            for token in self._all_at(text, start, head)
        ]
        free = _FreeText(text)
        for _, _, start, token in sorted(found, key=lambda entry: entry[:3]):
            free.take(start, token)
        return free.pieces()

    def _heads(self, text: str) -> Iterator[tuple[int, str]]:
        """Every place where a token may start, overlapping ones included."""
        assert self._starts is not None
        position = 0
        while match := self._starts.search(text, position):
            yield match.start(), match[0]
            position = match.start() + 1


class _FreeText:
    """Which characters of a text are still plain."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._taken = bytearray(len(text))
        self._tokens: list[tuple[int, int, int]] = []  # start, end (white space included), id

    def take(self, start: int, token: SpecialToken) -> None:
        """Give [start, start + len) and the white space that goes with it to `token`, if all of it is free."""
        end = start + len(token.text)
        if any(self._taken[start:end]):
            return
        while token.strips_left and start > 0 and not self._taken[start - 1] and self._text[start - 1] in _ASCII_SPACE:
            start -= 1
        while token.strips_right and end < len(self._text) and not self._taken[end] and self._text[end] in _ASCII_SPACE:
            end += 1
        self._taken[start:end] = b"\1" * (end - start)
        self._tokens.append((start, end, token.id))

    def pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        position = 0
        for start, end, token_id in sorted(self._tokens):
            if start > position:
                pieces.append(self._text[position:start])
            pieces.append(token_id)
            position = end
        if position < len(self._text):
            pieces.append(self._text[position:])
        return pieces


_ASCII_SPACE = " \t\n\v\f\r"


def _n_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _same_runs(a: str, b: str) -> bool:
    return set(a) == set(b) == {a[0]}


def _head_patterns(heads: Iterable[str]) -> list[str]:
    """Patterns for the first one or two characters of any token, one for each first character: `<[|/]`."""
    seconds: dict[str, set[str]] = {}
    for head in heads:
        seconds.setdefault(head[0], set()).add(head[1:])
    parts = []
    for first, rest in sorted(seconds.items()):
        pairs = "".join(re.escape(char) for char in sorted(rest - {""}))
        tail = f"[{pairs}]" if pairs else ""
        parts.append(re.escape(first) + tail + ("?" if tail and "" in rest else ""))
    return parts


def whole_runs(texts: Collection[str]) -> dict[str, tuple[int, int]]:
    """Characters whose tokens are all runs of it, of every length from the first to the second number."""
    by_first: dict[str, list[str]] = {}
    for text in texts:
        by_first.setdefault(text[0], []).append(text)
    found = {}
    for char, own in by_first.items():
        sizes = sorted(map(len, own))
        if len(own) > 1 and sizes == list(range(sizes[0], sizes[-1] + 1)) and all(t == char * len(t) for t in own):
            found[char] = sizes[0], sizes[-1]
    return found
