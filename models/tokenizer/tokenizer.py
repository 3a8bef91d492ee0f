"""Tokenizer: text <-> token ids, as the GGUF file says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import regex

from localinfer.errors import FormatError, UnsupportedModel
from localinfer.models.tokenizer.bpe import BPE
from localinfer.models.tokenizer.byte_chars import chars_to_bytes
from localinfer.models.tokenizer.chunks import SPACE
from localinfer.models.tokenizer.merging import OpenTable
from localinfer.models.tokenizer.pretokenizers import pre_tokenizer
from localinfer.models.tokenizer.special import SpecialMatcher, SpecialToken, whole_runs
from localinfer.models.tokenizer.spm import SPM
from localinfer.models.tokenizer.stream import StreamDecoder
from localinfer.models.tokenizer.unigram import Unigram
from localinfer.models.tokenizer.vocabulary import PREFIX, TokenType, Vocabulary, read_vocabulary
from localinfer.records import dataclass

_SURROGATES = regex.compile("[\ud800-\udfff]")


class HasMetadata(Protocol):
    """What `from_gguf` needs of a GGUFFile."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...


class TextEncoder(Protocol):
    """BPE, SPM or Unigram: plain text -> ids. `own_special_ids`: special tokens that it finds by itself."""

    @property
    def own_special_ids(self) -> Collection[int]: ...
    def encode(self, text: str) -> list[int]: ...
    def encode_all(self, texts: Sequence[str]) -> Iterator[list[int]]: ...


@dataclass(frozen=True)
class _Rules:
    """What differs between the tokenizer models, beside the encoder."""

    add_bos: bool
    add_eos: bool
    space_prefix: bool  # we put a space before the text and after each special token
    drops_space: bool  # that space, ours or the encoder's, is not the text's own
    byte_encoded: bool  # token texts are byte characters (GPT-2); otherwise UTF-8 with ▁


class Tokenizer:
    """Read-only after construction, apart from its caches."""

    def __init__(self, vocabulary: Vocabulary, encoder: TextEncoder, rules: _Rules, strips: _Strips) -> None:
        self._vocabulary = vocabulary
        self._encoder = encoder
        self._rules = rules
        in_encoder = frozenset(encoder.own_special_ids)
        self._hidden = frozenset(vocabulary.ids_of_type(TokenType.CONTROL, TokenType.UNKNOWN))
        self._user_defined = frozenset(vocabulary.ids_of_type(TokenType.USER_DEFINED))
        cut = self._user_defined - in_encoder
        self._all_special = SpecialMatcher(_special_tokens(vocabulary, self._hidden | cut, strips))
        self._only_user_defined = SpecialMatcher(_special_tokens(vocabulary, cut, strips))
        self._bytes: dict[int, bytes] = {}
        self.notices = vocabulary.notices

    @classmethod
    def from_gguf(cls, file: HasMetadata, open_table: OpenTable | None = None) -> Tokenizer:
        """UnsupportedModel for a tokenizer model or pre-tokenizer we lack, FormatError for unsound metadata.
        `open_table` brings the compiled form of merging, which long texts use."""
        return _build(file.metadata, open_table)

    @property
    def n_vocab(self) -> int:
        return self._vocabulary.n_vocab

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        return self._vocabulary.eos_id

    @property
    def eot_id(self) -> int | None:
        """The end of a turn, where it is told apart from the end of the text."""
        return self._vocabulary.eot_id

    @property
    def unk_id(self) -> int | None:
        return self._vocabulary.unk_id

    @property
    def pad_id(self) -> int | None:
        return self._vocabulary.pad_id

    @property
    def eog_ids(self) -> frozenset[int]:
        """All ids after which a generation ends."""
        return self._vocabulary.eog_ids

    @property
    def special_ids(self) -> frozenset[int]:
        """Control and unknown tokens: those that `skip_special` hides."""
        return self._hidden

    @property
    def add_bos(self) -> bool:
        return self._rules.add_bos and self.bos_id is not None

    @property
    def add_eos(self) -> bool:
        return self._rules.add_eos and self.eos_id is not None

    def encode(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Ids of `text`. `add_special` puts BOS before and EOS behind it where the file asks for them;
        `parse_special` lets control tokens in the text be themselves, not their letters."""
        ids: list[int] = [self.bos_id] if add_special and self.add_bos and self.bos_id is not None else []
        matcher = self._all_special if parse_special else self._only_user_defined
        pieces = list(matcher.split(without_surrogates(text)))
        texts = self._encoder.encode_all(list(self._texts(pieces)))
        for piece in pieces:
            ids += next(texts) if isinstance(piece, str) else (piece,)
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def _texts(self, pieces: Iterable[str | int]) -> Iterator[str]:
        """What is text in `pieces`, with the prefix that it gets at the start and after a special token."""
        prefix = " " if self._rules.space_prefix else ""
        after_special = True
        for piece in pieces:
            if isinstance(piece, str):
                yield prefix + piece if after_special else piece
            after_special = not isinstance(piece, str)

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of `ids`: `decode(encode(text, add_special=False)) == text` for any text that the vocabulary can
        spell. Unfinished characters become U+FFFD. IndexError for an id out of range."""
        if not self._rules.drops_space:
            hidden = self._hidden if skip_special else frozenset()
            data = b"".join([self.token_bytes(i) for i in ids if i not in hidden])
            return data.decode("utf-8", "replace")
        stream = self.stream(skip_special, at_start=True)
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self, skip_special: bool = False, at_start: bool = False) -> StreamDecoder:
        """A decoder for ids that come one by one. `at_start`: they begin a text, so that a space which encoding puts
        before texts is dropped; False: they go on after other text."""
        drops = self._hidden | self._user_defined if self._rules.drops_space else frozenset()
        hides = self._hidden if skip_special else frozenset()
        return StreamDecoder(self.token_bytes, hides, drops, at_start and self._rules.drops_space)

    def piece(self, token: int) -> str:
        """The text of one token for display; bytes that are no text become U+FFFD."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` stands for (special tokens: their name). IndexError for an id out of range."""
        found = self._bytes.get(token)
        if found is None:
            if not 0 <= token < self.n_vocab:
                raise IndexError(f"token id {token} is outside 0..{self.n_vocab - 1}")
            found = self._bytes[token] = self._read_bytes(token)
        return found

    def _read_bytes(self, token: int) -> bytes:
        text = self._vocabulary.tokens[token]
        kind = self._vocabulary.types[token]
        if kind == TokenType.BYTE and len(text) == 6 and text.startswith("<0x"):
            return bytes([int(text[3:5], 16)])
        if kind in (TokenType.NORMAL, TokenType.UNUSED, TokenType.BYTE, TokenType.UNDEFINED):
            if not self._rules.byte_encoded:
                text = text.replace(SPACE, " ")
            elif (found := chars_to_bytes(text)) is not None:
                return found
        return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class _Strips:
    """Ids of the tokens that take the white space on a side with them."""

    left: frozenset[int] = frozenset()
    right: frozenset[int] = frozenset()


def _special_tokens(vocabulary: Vocabulary, ids: frozenset[int], strips: _Strips) -> list[SpecialToken]:
    return [SpecialToken(vocabulary.tokens[i], i, i in strips.left, i in strips.right) for i in sorted(ids)]


def without_surrogates(text: str) -> str:
    """Lone surrogates (undecodable bytes of a command line) have no UTF-8: they become U+FFFD."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)


def _strips(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> _Strips:
    """GGUF does not carry which added tokens strip white space; llama.cpp knows these by name, so do we."""
    name = str(metadata.get("general.name", "")).lower()
    pre = str(metadata.get(PREFIX + "pre", ""))
    if pre in ("jina-v2-de", "jina-v2-es", "jina-v2-code") and "<mask>" in vocabulary.ids:
        return _Strips(left=frozenset({vocabulary.ids["<mask>"]}))
    if "phi-3" in name or "phi3" in name:
        special = vocabulary.ids_of_type(TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
        keep = {vocabulary.ids.get(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
        return _Strips(right=frozenset(special) - keep)
    return _Strips()


def _flag(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    value = metadata.get(PREFIX + name, default)
    if not isinstance(value, bool):
        raise FormatError(f"{PREFIX}{name}: expected true or false, found {value!r}"[:200])
    return value


def _text(metadata: Mapping[str, Any], name: str) -> str | None:
    value = metadata.get(PREFIX + name)
    if value is not None and not isinstance(value, str):
        raise FormatError(f"{PREFIX}{name}: expected a name, found {value!r}"[:200])
    return value


def _build(metadata: Mapping[str, Any], open_table: OpenTable | None) -> Tokenizer:
    model = _text(metadata, "model")
    if model is None:
        raise FormatError(f"{PREFIX}model: expected the kind of tokenizer, found nothing", "the file has no tokenizer")
    builders = {"gpt2": _build_bpe, "gemma4": _build_bpe, "llama": _build_spm, "t5": _build_unigram}
    if model not in builders:
        known = ", ".join(builders)
        raise UnsupportedModel(f"{PREFIX}model: unknown tokenizer {model[:80]!r}", f"localinfer knows {known}")
    return builders[model](metadata, model, open_table)


def _build_bpe(metadata: Mapping[str, Any], model: str, open_table: OpenTable | None) -> Tokenizer:
    # Files older than May 2024 name no pre-tokenizer; `default` is what they were made for.
    name = "gemma4" if model == "gemma4" else (_text(metadata, "pre") or "default")
    pre = pre_tokenizer(name)
    default_id = None if model == "gemma4" or name in ("chatglm-bpe", "glm4", "glm5") else 11
    vocabulary = read_vocabulary(metadata, {"bos": default_id, "eos": None if model == "gemma4" else 11})
    merges = metadata.get(PREFIX + "merges")
    if not isinstance(merges, list | tuple) or not merges or not isinstance(merges[0], str):
        raise FormatError(
            f"{PREFIX}merges: expected an array of merge rules, found {'nothing' if not merges else 'other values'}"
        )
    rules = _Rules(
        add_bos=_flag(metadata, "add_bos_token", pre.add_bos) or name == "gemma4",
        add_eos=_flag(metadata, "add_eos_token", False),
        space_prefix=False,
        drops_space=False,
        byte_encoded=pre.byte_encoded,
    )
    encoder = BPE(vocabulary, merges, pre, pre.ignore_merges, open_table)
    return Tokenizer(vocabulary, encoder, rules, _strips(metadata, vocabulary))


def _build_spm(metadata: Mapping[str, Any], model: str, open_table: OpenTable | None) -> Tokenizer:
    vocabulary = read_vocabulary(metadata, {"bos": 1, "eos": 2, "unk": 0})
    space_prefix = _flag(metadata, "add_space_prefix", True)
    rules = _Rules(
        add_bos=_flag(metadata, "add_bos_token", True),
        add_eos=_flag(metadata, "add_eos_token", False),
        space_prefix=space_prefix,
        drops_space=space_prefix,
        byte_encoded=False,
    )
    strips = _strips(metadata, vocabulary)
    runs = {} if space_prefix or strips.left or strips.right else _runs(vocabulary)
    return Tokenizer(vocabulary, SPM(vocabulary, runs, open_table), rules, strips)


def _runs(vocabulary: Vocabulary) -> dict[str, tuple[int, int]]:
    """User-defined tokens that are runs of white space, if nothing else special has such a character in it: then it is
    all the same whether they are cut out before or after the rest."""
    user_defined = [vocabulary.tokens[i] for i in vocabulary.ids_of_type(TokenType.USER_DEFINED)]
    runs = {char: sizes for char, sizes in whole_runs(user_defined).items() if char in " \n\t"}
    special = vocabulary.ids_of_type(TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
    others = (vocabulary.tokens[i] for i in special if vocabulary.tokens[i][0] not in runs)
    return {} if any(char in text for text in others for char in runs) else runs


def _build_unigram(metadata: Mapping[str, Any], model: str, open_table: OpenTable | None) -> Tokenizer:
    vocabulary = read_vocabulary(metadata, {"eos": 1, "unk": 2, "pad": 0})
    space_prefix = _flag(metadata, "add_space_prefix", False)
    merge_spaces = _flag(metadata, "remove_extra_whitespaces", False)
    rules = _Rules(
        add_bos=_flag(metadata, "add_bos_token", False),
        add_eos=_flag(metadata, "add_eos_token", True),
        space_prefix=False,
        drops_space=space_prefix or merge_spaces,
        byte_encoded=False,
    )
    encoder = Unigram(
        vocabulary,
        space_prefix=space_prefix,
        merge_spaces=merge_spaces,
        charsmap=bytes(b & 0xFF for b in metadata.get(PREFIX + "precompiled_charsmap") or ()),
    )
    return Tokenizer(vocabulary, encoder, rules, _strips(metadata, vocabulary))
