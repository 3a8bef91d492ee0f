"""Byte-pair encoding with a merge list: GPT-2 and its descendants (`tokenizer.ggml.model` = gpt2, gemma4).

Words come from the pre-tokenizer; each is spelled in byte characters, then merged by rank (the place in
`tokenizer.ggml.merges`). Gemma 4 and Sarvam spell in UTF-8 text with ▁ for the space instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from localinfer.models.tokenizer.byte_chars import byte_chars, byte_chars_of
from localinfer.models.tokenizer.chunks import SPACE, Chunker, PairSplitter
from localinfer.models.tokenizer.merging import MergedIds, Merger, OpenTable
from localinfer.models.tokenizer.pretokenizers import PreTokenizer
from localinfer.models.tokenizer.vocabulary import Vocabulary
from localinfer.models.tokenizer.word_cache import WordCache

# A word longer than this is first cut where no merge rule joins its neighbours.
_LONG_WORD = 512


class BPE:
    """Text without special tokens -> ids."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        merges: Sequence[str],
        pre: PreTokenizer,
        ignore_merges: bool,
        open_table: OpenTable | None = None,
    ) -> None:
        self._ids = vocabulary.ids
        # Of a repeated rule the first counts, so the list is read from its end.
        ranks: dict[str, float] = dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))
        self._merged = MergedIds(Merger(ranks, " ", open_table, merges), self._ids, self._apart)
        self._whole_words = ignore_merges
        self._byte_encoded = pre.byte_encoded
        self._byte_ids = vocabulary.byte_ids()
        self._pairs = PairSplitter(lambda: "\0".join(ranks), " ")
        self._split = pre.splitter()
        if not pre.byte_encoded:
            made = {rule.replace(" ", "", 1) for rule in merges}
            self._split_line = Chunker(made, made).split
        self._words = WordCache(self._encode_word, self._encode_words)
        self._parts = WordCache(self._merged.of, self._merged.of_each)  # of long words; in their spelling

    @property
    def own_special_ids(self) -> Collection[int]:
        """Special tokens that `encode` finds by itself."""
        return ()

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, in which no special token is looked for."""
        return next(self.encode_all([text]))

    def encode_all(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Ids of each of `texts`."""
        if self._byte_encoded:
            return self._words.ids_of_each(list(map(self._split, texts)))
        return map(self._encode_lines, texts)

    def _encode_lines(self, text: str) -> list[int]:
        return [i for line in self._split(text.replace(" ", SPACE)) for i in self._encode_line(line)]

    def _encode_line(self, line: str) -> Sequence[int]:
        """One run of newlines, or a line without any (UTF-8 spelling)."""
        if line[0] == "\n":
            return self._words[line]
        return self._words.ids_of(self._split_line(line))

    def _encode_word(self, word: str) -> list[int]:
        spelled = byte_chars(word) if self._byte_encoded else word
        whole = self._whole(spelled)
        if whole is not None:
            return [whole]
        if len(spelled) > _LONG_WORD:
            return self._parts.ids_of(self._pairs.split(spelled))
        return self._merged.of(spelled)

    def _encode_words(self, words: Sequence[str]) -> Iterator[list[int]]:
        spelled = byte_chars_of(words) if self._byte_encoded else words
        for word, ids in zip(spelled, self._merged.of_each(spelled), strict=True):
            whole = self._whole(word)
            yield ids if whole is None else [whole]

    def _whole(self, spelled: str) -> int | None:
        """The id of a word that is a token and is not merged."""
        return self._ids.get(spelled) if self._whole_words or spelled[0] == "\n" else None

    def _apart(self, symbol: str) -> list[int]:
        """A merged symbol that is no token falls apart into its bytes; bytes without a token are left out."""
        if self._byte_encoded:
            return [self._ids[char] for char in symbol if char in self._ids]
        return [i for byte in symbol.encode("utf-8") if (i := self._byte_ids[byte]) is not None]
