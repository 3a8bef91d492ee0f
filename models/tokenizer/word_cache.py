"""Remembers the ids of words seen before. A hit costs one C call: the cache is a dict that fills itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

# About 200 bytes an entry: 25 MB at most. Several megabytes of mixed prose have some 100,000 distinct words.
_MAX_ENTRIES = 1 << 17
# Longer chunks (base64, tables) seldom come twice.
_MAX_CHARS = 64


class WordCache(dict[str, tuple[int, ...]]):
    """word -> its ids, computed by `encode_word` at the first sight."""

    def __init__(self, encode_word: Callable[[str], list[int]]) -> None:
        super().__init__()
        self._encode_word = encode_word

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._encode_word(word))
        if len(word) <= _MAX_CHARS:
            if len(self) >= _MAX_ENTRIES:
                self.clear()
            self[word] = ids
        return ids

    def ids_of(self, words: Iterable[str]) -> list[int]:
        """The ids of all `words`, joined."""
        return list(chain.from_iterable(map(self.__getitem__, words)))
