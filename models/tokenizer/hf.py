"""The tokenizer of a folder in mlx-lm's format: tokenizer.json, run by the `tokenizers` package.

It offers what models/tokenizer/tokenizer.py does, so engine and chat template see no difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localinfer.errors import BackendError, FormatError, UnsupportedModel
from localinfer.models.tokenizer.byte_chars import chars_to_bytes
from localinfer.models.tokenizer.chunks import SPACE
from localinfer.models.tokenizer.stream import StreamDecoder
from localinfer.models.tokenizer.tokenizer import without_surrogates

if TYPE_CHECKING:
    from localinfer.formats.checkpoint import Checkpoint

FILE = "tokenizer.json"


class FolderTokenizer:
    """Read-only after construction, apart from its cache. One thread at a time."""

    notices: tuple[str, ...] = ()
    add_eos = False

    def __init__(
        self, folder: Path, config: dict[str, Any], settings: dict[str, Any], defaults: dict[str, Any]
    ) -> None:
        """`config` is config.json, `settings` tokenizer_config.json, `defaults` generation_config.json."""
        self._tokenizer, source = _load(folder)
        size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        padded = config.get("vocab_size")  # the model may have more rows than there are tokens
        self.n_vocab = max(size, padded) if isinstance(padded, int) else size
        added = {t["id"]: t for t in source.get("added_tokens") or ()}
        self.special_ids = frozenset(i for i, t in added.items() if t.get("special"))
        self._verbatim = frozenset(added)
        parts = json.dumps([source.get("decoder"), source.get("pre_tokenizer")])
        self._byte_encoded = '"ByteLevel"' in parts
        self._drops_space = not self._byte_encoded and _drops_space(source)
        self.bos_id, self.eos_id, self.unk_id, self.pad_id = (
            self._id_of(settings.get(f"{name}_token")) for name in ("bos", "eos", "unk", "pad")
        )
        ends = {self.eos_id, *_ids(config.get("eos_token_id")), *_ids(defaults.get("eos_token_id"))}
        self.eog_ids = frozenset(i for i in ends if i is not None and i < self.n_vocab)
        self.eot_id = None
        start = self._tokenizer.encode("", add_special_tokens=True).ids
        self.add_bos = self.bos_id is not None and self.bos_id in start
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> FolderTokenizer:
        """FormatError and UnsupportedModel as for a GGUF; BackendError where `tokenizers` is not installed."""
        from localinfer.formats.checkpoint import read_json

        folder = checkpoint.path
        others = (folder / name for name in ("tokenizer_config.json", "generation_config.json"))
        settings, defaults = (read_json(path) if path.is_file() else {} for path in others)
        return cls(folder, {**checkpoint.top_config, **checkpoint.config}, settings, defaults)

    def encode(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """As Tokenizer.encode."""
        self._tokenizer.encode_special_tokens = not parse_special
        ids: list[int] = self._tokenizer.encode(without_surrogates(text), add_special_tokens=add_special).ids
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """As Tokenizer.decode."""
        stream = self.stream(skip_special, at_start=True)
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self, skip_special: bool = False, at_start: bool = False) -> StreamDecoder:
        """As Tokenizer.stream."""
        hides = self.special_ids if skip_special else frozenset()
        drops = self._verbatim if self._drops_space else frozenset()
        return StreamDecoder(self.token_bytes, hides, drops, at_start and self._drops_space)

    def piece(self, token: int) -> str:
        """The text of one token for display."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` stands for. IndexError for an id out of range."""
        found = self._bytes.get(token)
        if found is None:
            found = self._bytes[token] = self._read_bytes(token)
        return found

    def _read_bytes(self, token: int) -> bytes:
        text = self._tokenizer.id_to_token(token) if token >= 0 else None
        if text is None:
            if 0 <= token < self.n_vocab:
                return b""  # a hole in the vocabulary
            raise IndexError(f"token id {token} is outside 0..{self.n_vocab - 1}")
        if token not in self._verbatim:
            if not self._byte_encoded:
                if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
                    return bytes([int(text[3:5], 16)])
                text = text.replace(SPACE, " ")
            elif (found := chars_to_bytes(text)) is not None:
                return found
        return str(text).encode("utf-8", "replace")

    def _id_of(self, token: Any) -> int | None:
        text = token.get("content") if isinstance(token, dict) else token
        return self._tokenizer.token_to_id(text) if isinstance(text, str) else None


def _load(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The package's tokenizer, and what the file says."""
    from localinfer.formats.checkpoint import read_json

    path = folder / FILE
    if not path.is_file():
        raise UnsupportedModel(
            f"{folder}: expected a {FILE}, found none: other kinds of tokenizer files are not read",
            "a newer conversion of the model has it",
        )
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BackendError(
            "a model in mlx-lm's format needs the package tokenizers", "pip install 'localinfer[mlx]'"
        ) from None
    source = read_json(path)
    try:
        return Tokenizer.from_file(str(path)), source
    except Exception as error:  # the package raises nothing finer
        raise FormatError(f"{path}: not a tokenizer: {str(error)[:150]}", "download it again") from None


def _drops_space(source: dict[str, Any]) -> bool:
    """Does encoding put a space before a text, which decoding takes away again? (SentencePiece's dummy prefix.)"""
    normalizer, pre = json.dumps(source.get("normalizer")), source.get("pre_tokenizer") or {}
    metaspace = pre.get("type") == "Metaspace" and pre.get("prepend_scheme", "always") != "never"
    return '"Prepend"' in normalizer or metaspace


def _ids(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [v for v in values if type(v) is int]
