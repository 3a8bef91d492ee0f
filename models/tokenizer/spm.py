"""SentencePiece BPE (`tokenizer.ggml.model` = llama): merge the neighbours whose token has the best score.

There are no words: the text is one string with ▁ for each space. Characters outside the vocabulary become byte
tokens. Llama-style files put a space before the text and after each special token (`add_space_prefix`).
"""

from __future__ import annotations

from operator import neg

from localinfer.models.tokenizer.chunks import SPACE, Chunker, PairSplitter, pairs_in
from localinfer.models.tokenizer.merging import merge_symbols
from localinfer.models.tokenizer.vocabulary import Vocabulary
from localinfer.models.tokenizer.word_cache import WordCache

_LONG_CHUNK = 64


class SPM:
    """Text without special tokens -> ids."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = vocabulary.ids
        scores = vocabulary.scores or [0.0] * vocabulary.n_vocab
        # A repeated text counts with its last id, as in `ids`.
        self._priority = dict(zip(vocabulary.tokens, map(neg, scores), strict=False))
        self._byte_ids = vocabulary.byte_ids()
        self._split = Chunker(vocabulary.tokens, vocabulary.ids).split
        self._pairs = PairSplitter(lambda: pairs_in(vocabulary.tokens))
        self._chunks = WordCache(self._encode_chunk)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, in which no special token is looked for."""
        return self._chunks.ids_of(self._split(text.replace(" ", SPACE)))

    def _encode_chunk(self, chunk: str) -> list[int]:
        if len(chunk) > _LONG_CHUNK:
            parts = self._pairs.split(chunk)
            if len(parts) > 1:
                return self._chunks.ids_of(parts)
        return self._merged(chunk)

    def _merged(self, chunk: str) -> list[int]:
        symbols = merge_symbols(list(chunk), self._priority, "")
        try:
            return [self._ids[symbol] for symbol in symbols]
        except KeyError:
            return [i for symbol in symbols for i in self._symbol(symbol)]

    def _symbol(self, symbol: str) -> list[int]:
        found = self._ids.get(symbol)
        if found is not None:
            return [found]
        return [i for byte in symbol.encode("utf-8") if (i := self._byte_ids[byte]) is not None]
