"""Text to token ids and back, from a GGUF file's metadata or a tokenizer.json. Nothing is imported but the error tree,
`regex` and stdlib, and the `tokenizers` package for a tokenizer.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localinfer.formats.gguf import GGUFFile
from localinfer.models.tokenizer.merging import OpenTable
from localinfer.models.tokenizer.stream import StreamDecoder, StreamState
from localinfer.models.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from localinfer.formats.model_file import ModelFile
    from localinfer.models.tokenizer.hf import FolderTokenizer

    AnyTokenizer = Tokenizer | FolderTokenizer


def open_tokenizer(file: ModelFile, open_table: OpenTable | None = None) -> AnyTokenizer:
    """The tokenizer of a model of either kind. Raises the error tree. `open_table`: merging.py's, of a backend."""
    if isinstance(file, GGUFFile):
        return Tokenizer.from_gguf(file, open_table)
    from localinfer.models.tokenizer.hf import FolderTokenizer  # a GGUF file need not load it

    return FolderTokenizer.from_checkpoint(file)


__all__ = ["StreamDecoder", "StreamState", "Tokenizer", "open_tokenizer"]
