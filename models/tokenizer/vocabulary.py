"""The token table of a GGUF file: texts, types, special ids, and which ids end a generation.

Only `tokenizer.ggml.*` metadata is read. Where files leave a doubt we follow llama.cpp's llama-vocab.cpp
(https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from localinfer.errors import FormatError
from localinfer.records import dataclass

PREFIX = "tokenizer.ggml."


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`: one number a token."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Tokens with these texts end a turn in every known model that has them, whatever the metadata says.
END_OF_GENERATION_TEXTS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
})  # fmt: skip

# The end of a turn where `eot_token_id` is absent: the first of these that the vocabulary holds.
END_OF_TURN_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
    "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
)  # fmt: skip

# Fill-in-the-middle tokens: control tokens even where the file calls them normal; the last three end a generation.
FIM_TEXTS: dict[str, tuple[str, ...]] = {
    "fim_pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
                "<|code_prefix|>", "<|prefix|>"),
    "fim_suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
                "<|code_suffix|>", "<|suffix|>"),
    "fim_mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
                "<|code_middle|>", "<|middle|>"),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip
_FIM_ENDS = ("fim_pad", "fim_rep", "fim_sep")

# gpt-oss writes its channels with these: they are part of the text, not to be hidden.
_HARMONY_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


@dataclass(frozen=True)
class Vocabulary:
    """Token texts by id and back. `types[i]` is a TokenType number; every id is checked to be in range."""

    tokens: list[str]
    ids: dict[str, int]
    types: bytearray
    scores: Sequence[float] | None  # higher is better; None where the file has none
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    unk_id: int | None
    pad_id: int | None
    eog_ids: frozenset[int]
    notices: tuple[str, ...] = ()  # what was odd in the file, one line each

    @property
    def n_vocab(self) -> int:
        return len(self.tokens)

    def ids_of_type(self, *types: TokenType) -> list[int]:
        """Ascending ids whose type is one of `types`."""
        return [match.start() for match in re.finditer(b"[%s]" % bytes(types), self.types)]

    def byte_ids(self) -> list[int | None]:
        """For each byte the id of `<0xNN>`, else of the one-character token, else the unknown token."""
        return [self.ids.get(f"<0x{b:02X}>", self.ids.get(chr(b) if b < 0x80 else "", self.unk_id)) for b in range(256)]


def read_vocabulary(metadata: Mapping[str, Any], defaults: Mapping[str, int | None]) -> Vocabulary:
    """The vocabulary of `tokenizer.ggml.*`. `defaults` has the ids of bos, eos, unk that the tokenizer model
    implies where the file does not say. FormatError for missing, short or mistyped arrays."""
    tokens = list(_array(metadata, "tokens", str, 0))
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if "" in ids:
        tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]
        ids = dict(zip(tokens, range(len(tokens)), strict=True))
    types = _types(metadata, len(tokens))
    scores = _array(metadata, "scores", (int, float), len(tokens)) if PREFIX + "scores" in metadata else None
    reader = _SpecialIds(metadata, defaults, tokens, ids, types)
    special = {name: reader.special_id(name) for name in ("bos", "eos", "eot", "eom", "unk", "pad")}
    eog_ids = reader.end_of_generation(special)
    return Vocabulary(
        tokens, ids, types, scores,
        bos_id=special["bos"], eos_id=special["eos"], eot_id=special["eot"], unk_id=special["unk"],
        pad_id=special["pad"], eog_ids=frozenset(eog_ids), notices=tuple(reader.notices),
    )  # fmt: skip


def _array(metadata: Mapping[str, Any], name: str, kind: type | tuple[type, ...], at_least: int) -> Sequence[Any]:
    value = metadata.get(PREFIX + name)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise FormatError(
            f"{PREFIX}{name}: expected an array, found {'nothing' if value is None else repr(value)[:40]}"
        )
    if not value or len(value) < at_least:
        raise FormatError(f"{PREFIX}{name}: expected at least {max(at_least, 1)} entries, found {len(value)}")
    if not isinstance(value[0], kind):
        raise FormatError(f"{PREFIX}{name}: found an entry of type {type(value[0]).__name__}")
    return value


def _types(metadata: Mapping[str, Any], n: int) -> bytearray:
    """One byte a token: finding all tokens of a type is then a search."""
    if PREFIX + "token_type" not in metadata:
        return bytearray([TokenType.NORMAL]) * n
    found = _array(metadata, "token_type", int, n)
    try:
        return bytearray(iter(found))  # an array.array itself would give its raw memory
    except ValueError:
        return bytearray(t if 0 <= t < len(TokenType) else TokenType.UNDEFINED for t in found)


class _SpecialIds:
    """Finds the special tokens, by metadata first, then by text; corrects `types` of those found by text."""

    def __init__(
        self,
        metadata: Mapping[str, Any],
        defaults: Mapping[str, int | None],
        tokens: list[str],
        ids: dict[str, int],
        types: bytearray,
    ) -> None:
        self._metadata, self._defaults = metadata, defaults
        self._tokens, self._ids, self._types = tokens, ids, types
        self.notices: list[str] = []

    def special_id(self, name: str) -> int | None:
        """Metadata, else the default of the tokenizer model if that token is a control token, else by text."""
        found = self._from_metadata("unknown" if name == "unk" else "padding" if name == "pad" else name)
        if found is not None:
            return found
        default = self._defaults.get(name)
        # llama.cpp takes its default ids whatever they are; a plain word as end of text would cut answers short.
        if default is not None and default < len(self._tokens) and self._types[default] in (2, 3):
            return default
        if name == "eot":
            return self._by_text(END_OF_TURN_TEXTS)
        return self._by_text(("<|eom_id|>",)) if name == "eom" else None

    def end_of_generation(self, special: Mapping[str, int | None]) -> set[int]:
        """All ids after which a generation ends."""
        fim = {name: self._fim_id(name) for name in FIM_TEXTS}
        ends = {
            i
            for i in (*(fim[name] for name in _FIM_ENDS), *(special[n] for n in ("eos", "eot", "eom")))
            if i is not None
        }
        for text in END_OF_GENERATION_TEXTS:
            if (found := self._by_text((text,))) is not None:
                ends.add(found)
        for text in _HARMONY_TEXTS:
            if text in self._ids:
                self._types[self._ids[text]] = TokenType.USER_DEFINED
        self._except_for_harmony(ends)
        self._except_plain_s(ends)
        return ends

    def _except_for_harmony(self, ends: set[int]) -> None:
        """gpt-oss and Solar end a message, not the answer, with <|end|>."""
        texts = {self._tokens[i] for i in ends}
        if "<|end|>" in texts and (
            {"<|return|>", "<|call|>"} <= texts or ("<|flush|>" in texts and texts & {"<|call|>", "<|calls|>"})
        ):
            end = self._ids["<|end|>"]
            ends.discard(end)
            self._types[end] = TokenType.USER_DEFINED

    def _except_plain_s(self, ends: set[int]) -> None:
        """Gemma 4 has </s> as an HTML tag, an ordinary token."""
        texts = {self._tokens[i] for i in ends}
        if "</s>" in texts and "<|tool_response>" in texts:
            ends.discard(self._ids["</s>"])
            self._types[self._ids["</s>"]] = TokenType.NORMAL

    def _fim_id(self, name: str) -> int | None:
        found = self._from_metadata(name)
        return self._by_text(FIM_TEXTS[name]) if found is None else found

    def _from_metadata(self, name: str) -> int | None:
        key = f"{PREFIX}{name}_token_id"
        value = self._metadata.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(f"{key}: expected a token id, found {value!r}"[:200])
        if not 0 <= value < len(self._tokens):
            self.notices.append(f"{key} = {value} is outside the vocabulary of {len(self._tokens)} tokens: ignored")
            return None
        return value

    def _by_text(self, texts: tuple[str, ...]) -> int | None:
        for text in texts:
            found = self._ids.get(text)
            if found is not None:
                if self._types[found] != TokenType.CONTROL:
                    self._types[found] = TokenType.CONTROL
                return found
        return None
