"""SentencePiece BPE (`tokenizer.ggml.model` = llama): merge the neighbours whose token has the best score.

There are no words: the text is one string with ▁ for each space. Characters outside the vocabulary become byte
tokens. Llama-style files put a space before the text and after each special token (`add_space_prefix`).
"""

from __future__ import annotations

from localinfer.models.tokenizer.chunks import SPACE, PairSplitter, characters_before_space, pairs_in, space_splitter
from localinfer.models.tokenizer.merging import NEVER, merge_symbols
from localinfer.models.tokenizer.vocabulary import Vocabulary
from localinfer.models.tokenizer.word_cache import WordCache

_LONG_CHUNK = 64


class SPM:
    """Text without special tokens -> ids."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = vocabulary.ids
        self._scores = vocabulary.scores
        self._byte_ids = vocabulary.byte_ids()
        self._split = space_splitter(characters_before_space(vocabulary.tokens))
        self._pairs = PairSplitter(lambda: pairs_in(vocabulary.tokens))
        self._chunks = WordCache(self._encode_chunk)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, in which no special token is looked for."""
        return self._chunks.ids_of(self._split(text.replace(" ", SPACE)))

    def _encode_chunk(self, chunk: str) -> list[int]:
        parts = self._pairs.split(chunk) if len(chunk) > _LONG_CHUNK else [chunk]
        return [
            i for part in parts for symbol in merge_symbols(list(part), self._priority) for i in self._symbol(symbol)
        ]

    def _priority(self, left: str, right: str) -> float:
        token = self._ids.get(left + right)
        if token is None:
            return NEVER
        return -self._scores[token] if self._scores is not None else 0.0

    def _symbol(self, symbol: str) -> list[int]:
        found = self._ids.get(symbol)
        if found is not None:
            return [found]
        return [i for byte in symbol.encode("utf-8") if (i := self._byte_ids[byte]) is not None]
