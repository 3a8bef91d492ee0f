"""SentencePiece's precompiled character map: normalises text (NFKC and the like) by longest prefix.

Layout (https://github.com/google/sentencepiece/blob/d8f741853847553169444afc12c00f4bbff3e9ce/src/normalizer.cc):
uint32 size of the trie in bytes, the trie (a darts-clone double array of uint32 units), then zero-terminated UTF-8
replacements; a leaf's value is the offset of its replacement. All integers are little-endian.
"""

from __future__ import annotations

import struct

from localinfer.errors import FormatError

_KEY = "tokenizer.ggml.precompiled_charsmap"


class CharsMap:
    """Looks up the longest mapped prefix. FormatError where the blob contradicts itself."""

    def __init__(self, blob: bytes) -> None:
        if len(blob) < 4:
            raise FormatError(f"{_KEY}: expected at least 4 bytes, found {len(blob)}")
        (n_bytes,) = struct.unpack_from("<I", blob)
        if n_bytes % 4 or n_bytes + 4 >= len(blob) or n_bytes == 0:
            raise FormatError(f"{_KEY}: the trie's size {n_bytes} does not fit the {len(blob)} bytes there are")
        self._units = struct.unpack_from(f"<{n_bytes // 4}I", blob, 4)
        self._replacements = blob[4 + n_bytes :]

    def longest_prefix(self, text: bytes, start: int) -> tuple[int, bytes] | None:
        """(bytes matched, their replacement) for the longest mapped prefix of text[start:], or None."""
        found: tuple[int, int] | None = None
        node = _offset(self._unit(0))
        for position in range(start, len(text)):
            byte = text[position]
            if byte == 0:
                break
            node ^= byte
            unit = self._unit(node)
            if unit & 0x800000FF != byte:
                break
            node ^= _offset(unit)
            if unit >> 8 & 1:
                found = position - start + 1, self._unit(node) & 0x7FFFFFFF
        return (found[0], self._replacement(found[1])) if found else None

    def _unit(self, index: int) -> int:
        if index >= len(self._units):
            raise FormatError(f"{_KEY}: unit {index} is outside the trie of {len(self._units)}")
        return self._units[index]

    def _replacement(self, offset: int) -> bytes:
        end = self._replacements.find(b"\0", offset)
        if end < 0:
            raise FormatError(f"{_KEY}: no replacement ends after offset {offset}")
        return self._replacements[offset:end]


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)
