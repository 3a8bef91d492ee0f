"""SentencePiece BPE (`tokenizer.ggml.model` = llama): merge the neighbours whose token has the best score.

There are no words: the text is one string with ▁ for each space. Characters outside the vocabulary become byte
tokens. Llama-style files put a space before the text and after each special token (`add_space_prefix`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import neg

from localinfer.models.tokenizer.chunks import SPACE, Chunker, PairSplitter
from localinfer.models.tokenizer.merging import MergedIds, Merger, OpenTable
from localinfer.models.tokenizer.special import SpecialMatcher, SpecialToken
from localinfer.models.tokenizer.vocabulary import Vocabulary
from localinfer.models.tokenizer.word_cache import WordCache

_LONG_CHUNK = 512


class SPM:
    """Text without special tokens -> ids. `runs` are special tokens that Gemma cuts at every line: runs of newlines,
    tabs or spaces, by character with the least and most repeats. Finding them here, in the same pass as the words, is
    what makes it fast."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        runs: Mapping[str, tuple[int, int]] | None = None,
        open_table: OpenTable | None = None,
    ) -> None:
        self._ids = vocabulary.ids
        scores = vocabulary.scores or [0.0] * vocabulary.n_vocab
        # A repeated text counts with its last id, as in `ids`.
        merger = Merger(dict(zip(vocabulary.tokens, map(neg, scores), strict=False)), "", open_table)
        self._merged = MergedIds(merger, self._ids, self._apart)
        self._byte_ids = vocabulary.byte_ids()
        chunker = Chunker(vocabulary.tokens, vocabulary.ids)
        self._split = chunker.split
        self._pairs = PairSplitter(lambda: "\0".join(vocabulary.tokens))
        self._chunks = WordCache(self._encode_chunk, self._merged.of_each)
        self._runs = _run_ids(vocabulary, runs or {})
        self._run_matcher = SpecialMatcher([SpecialToken(text, i) for text, i in self._runs.items()])
        escaped = {char.replace(" ", SPACE): sizes for char, sizes in (runs or {}).items()}
        self._split_with_runs = chunker.with_runs(escaped)
        self._escaped_runs = {text.replace(" ", SPACE): i for text, i in self._runs.items()}
        self._chunks_and_runs = WordCache(self._encode_chunk_or_run, self._encode_chunks_and_runs)

    @property
    def own_special_ids(self) -> Collection[int]:
        """Special tokens that `encode` finds by itself."""
        return self._runs.values()

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, in which no special token but the runs is looked for."""
        return next(self.encode_all([text]))

    def encode_all(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Ids of each of `texts`."""
        if not self._runs:
            return self._chunks.ids_of_each([self._split(text.replace(" ", SPACE)) for text in texts])
        return map(self._encode_with_runs, texts)

    def _encode_with_runs(self, text: str) -> list[int]:
        if SPACE not in text:
            return self._chunks_and_runs.ids_of(self._split_with_runs(text.replace(" ", SPACE)))
        # `▁▁` typed by a person is no run of spaces.
        ids: list[int] = []
        for piece in self._run_matcher.split(text):
            ids += self._encode_plain(piece) if isinstance(piece, str) else [piece]
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        return self._chunks.ids_of(self._split(text.replace(" ", SPACE)))

    def _encode_chunk_or_run(self, chunk: str) -> list[int]:
        run = self._escaped_runs.get(chunk)
        return self._encode_chunk(chunk) if run is None else [run]

    def _encode_chunks_and_runs(self, chunks: Sequence[str]) -> Iterator[list[int]]:
        for chunk, ids in zip(chunks, self._merged.of_each(chunks), strict=True):
            yield [self._escaped_runs[chunk]] if chunk in self._escaped_runs else ids

    def _encode_chunk(self, chunk: str) -> list[int]:
        if len(chunk) > _LONG_CHUNK:
            parts = self._pairs.split(chunk)
            if len(parts) > 1:
                return self._chunks.ids_of(parts)
        return self._merged.of(chunk)

    def _apart(self, symbol: str) -> list[int]:
        return [i for byte in symbol.encode("utf-8") if (i := self._byte_ids[byte]) is not None]


def _run_ids(vocabulary: Vocabulary, runs: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    return {char * n: vocabulary.ids[char * n] for char, (least, most) in runs.items() for n in range(least, most + 1)}
