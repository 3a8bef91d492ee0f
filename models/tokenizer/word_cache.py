"""Remembers the ids of words seen before. A hit costs one C call: the cache is a dict that fills itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

# About 200 bytes an entry: 25 MB at most. Several megabytes of mixed prose have some 100,000 distinct words.
_MAX_ENTRIES = 1 << 17
# Longer chunks (base64, tables) seldom come twice.
_MAX_CHARS = 128
# So many words at once are looked through for new ones, which are then encoded together.
_MANY = 4000


class WordCache(dict[str, tuple[int, ...]]):
    """word -> its ids, computed by `encode_word` at the first sight, or by `encode_words` for many."""

    def __init__(
        self,
        encode_word: Callable[[str], list[int]],
        encode_words: Callable[[Sequence[str]], Iterable[Sequence[int]]] | None = None,
    ) -> None:
        super().__init__()
        self._encode_word = encode_word
        self._encode_words = encode_words

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._encode_word(word))
        if len(word) <= _MAX_CHARS:
            if len(self) >= _MAX_ENTRIES:
                self.clear()
            self[word] = ids
        return ids

    def ids_of(self, words: Sequence[str]) -> list[int]:
        """The ids of all `words`, joined."""
        return next(self.ids_of_each([words]))

    def ids_of_each(self, texts: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        """The ids of each text, whose words are given."""
        if self._encode_words and sum(map(len, texts)) >= _MANY:
            self._learn(chain.from_iterable(texts))
        return (list(chain.from_iterable(map(self.__getitem__, words))) for words in texts)

    def _learn(self, words: Iterable[str]) -> None:
        """Encode what is new in `words` together, as far as it would be remembered."""
        new = [word for word in set(words).difference(self) if len(word) <= _MAX_CHARS][:_MAX_ENTRIES]
        if len(self) + len(new) > _MAX_ENTRIES:
            self.clear()
        if self._encode_words:
            self.update(zip(new, map(tuple, self._encode_words(new)), strict=True))
