"""SentencePiece unigram (`tokenizer.ggml.model` = t5): the segmentation with the best sum of scores (Viterbi).

Scores are log probabilities. Where no token covers a character, the unknown token does, 10 below the worst score;
neighbouring unknowns become one. Chunks between `▁` that no token spans are independent, so each is solved once:
sums of float32 scores are exact in the doubles that hold them, whatever the start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from localinfer.models.tokenizer.charsmap import CharsMap
from localinfer.models.tokenizer.chunks import SPACE, Chunker
from localinfer.models.tokenizer.vocabulary import TokenType, Vocabulary
from localinfer.models.tokenizer.word_cache import WordCache

_UNKNOWN_PENALTY = 10.0


class _Everything:
    """Contains all: Viterbi takes a token as it stands, it need not be made from parts."""

    def __contains__(self, item: object) -> bool:
        return True


class Unigram:
    """Text without special tokens -> ids."""

    def __init__(self, vocabulary: Vocabulary, space_prefix: bool, merge_spaces: bool, charsmap: bytes) -> None:
        self._space_prefix = space_prefix
        self._merge_spaces = merge_spaces
        self._charsmap = CharsMap(charsmap) if charsmap else None
        self._unk = vocabulary.unk_id
        self._user_defined = {vocabulary.tokens[i] for i in vocabulary.ids_of_type(TokenType.USER_DEFINED)}
        self._user_lengths = sorted({len(text) for text in self._user_defined}, reverse=True)
        self._scores = self._read_scores(vocabulary)
        self._max_chars = max(map(len, self._scores), default=1)
        self._split = Chunker(self._scores, _Everything()).split
        self._chunks = WordCache(self._encode_chunk)

    def _read_scores(self, vocabulary: Vocabulary) -> dict[str, tuple[float, int]]:
        """Text -> (score, id) of every token that may be chosen; sets the unknown token's score."""
        scores = vocabulary.scores or [0.0] * vocabulary.n_vocab
        normal = [scores[i] for i in vocabulary.ids_of_type(TokenType.NORMAL)]
        self._unk_score = min(normal, default=0.0) - _UNKNOWN_PENALTY
        usable = vocabulary.ids_of_type(TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
        return {
            (text := vocabulary.tokens[i]): (0.0 if text in self._user_defined else float(scores[i]), i) for i in usable
        }

    @property
    def own_special_ids(self) -> Collection[int]:
        """Special tokens that `encode` finds by itself."""
        return ()

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, in which no control token is looked for."""
        ids: list[int] = []
        for chunk in self._split(self._normalized(text)):
            found = self._chunks[chunk]
            skip = bool(ids) and ids[-1] == self._unk == (found[0] if found else None)
            ids.extend(found[1:] if skip else found)
        return ids

    def encode_all(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Ids of each of `texts`."""
        return map(self.encode, texts)

    def _normalized(self, text: str) -> str:
        """White space as `▁`, with the prefix and the merging that the file asks for."""
        out: list[str] = []
        prepended = in_word = False
        for char in self._mapped(text):
            if char != " ":
                if not in_word:
                    in_word = True
                    if (self._space_prefix and not prepended) or self._merge_spaces:
                        out.append(SPACE)
                        prepended = True
                out.append(char)
            else:
                in_word = False
                if not self._merge_spaces:
                    out.append(SPACE)
        return "".join(out)

    def _mapped(self, text: str) -> str:
        """The character map applied; user-defined tokens go through as they are."""
        if self._charsmap is None:
            return text
        data = text.encode("utf-8")
        out: list[bytes] = []
        position = 0
        while position < len(data):
            n_bytes, replacement = self._map_at(data, position)
            out.append(replacement)
            position += n_bytes
        return b"".join(out).decode("utf-8", "replace")

    def _map_at(self, data: bytes, position: int) -> tuple[int, bytes]:
        assert self._charsmap is not None
        if self._user_defined:
            head = data[position : position + 4 * self._user_lengths[0]].decode("utf-8", "ignore")
            for length in self._user_lengths:
                if head[:length] in self._user_defined:
                    own = head[:length].encode("utf-8")
                    return len(own), own
        found = self._charsmap.longest_prefix(data, position)
        if found:
            return found
        end = position + 1
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        return end - position, data[position:end]

    def _encode_chunk(self, chunk: str) -> list[int]:
        """Viterbi over the characters of `chunk`; of equal sums the one found first, from the left."""
        n = len(chunk)
        best: list[tuple[float, int, int | None]] = [(float("-inf"), 0, self._unk)] * (n + 1)
        best[0] = (0.0, 0, self._unk)
        for start in range(n):
            total = best[start][0]
            for end in range(start + 1, min(start + self._max_chars, n) + 1):
                token = self._scores.get(chunk[start:end])
                if token is not None and total + token[0] > best[end][0]:
                    best[end] = (total + token[0], start, token[1])
            if chunk[start] not in self._scores and total + self._unk_score > best[start + 1][0]:
                best[start + 1] = (total + self._unk_score, start, self._unk)
        return self._path(best)

    def _path(self, best: list[tuple[float, int, int | None]]) -> list[int]:
        ids: list[int | None] = []
        end = len(best) - 1
        while end > 0:
            _, start, token = best[end]
            if not (token == self._unk and ids and ids[-1] == token):
                ids.append(token)
            end = start
        return [i for i in reversed(ids) if i is not None]
