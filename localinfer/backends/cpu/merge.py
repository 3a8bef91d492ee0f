"""Tokenizers merge long texts with the compiled kernels, whatever backend runs the model."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from localinfer.errors import BackendError
from localinfer.models.tokenizer.merging import MergeTable

if TYPE_CHECKING:
    from localinfer.backends.cpu.lib import Library


def open_merge_table(keys: Sequence[str], priority: Sequence[float] | None, between: str) -> MergeTable | None:
    """models/tokenizer/merging.py's OpenTable: None where the kernels are not built, or the keys hold what separates
    them."""
    from localinfer.backends.cpu.lib import open_library  # few texts are long enough to need them

    try:
        library = open_library()
    except BackendError:
        return None
    text = "\0".join(keys).encode("utf-8", "surrogatepass")
    numbers = array("d", priority or ())
    address = numbers.buffer_info()[0] if priority else None
    handle = library.li_merge_create(text, len(text), address, len(keys), between.encode())
    return _Table(library, handle).merge if handle else None


class _Table:
    def __init__(self, library: Library, handle: int) -> None:
        self._library = library
        self._handle = handle
        weakref.finalize(self, library.li_merge_destroy, handle)

    def merge(self, words: str) -> str | None:
        import ctypes

        data = words.encode("utf-8")
        out = ctypes.create_string_buffer(2 * len(data) + 1)
        n = self._library.li_merge_words(self._handle, data, len(data), out)
        return None if n < 0 else ctypes.string_at(out, n).decode("utf-8")
