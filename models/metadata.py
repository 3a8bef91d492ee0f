"""GGUF metadata of one architecture: `keys.integer("block_count")` reads `llama.block_count`.

A value that may be given once or per layer (head counts, widths) is read with `per_layer`.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

from localinfer.errors import FormatError

if TYPE_CHECKING:
    from localinfer.formats.gguf import GGUFFile

_REQUIRED = object()


class ArchKeys:
    """Reads `{arch}.{key}`; a missing required key or a wrong type is a FormatError naming file and key."""

    def __init__(self, f: GGUFFile, arch: str) -> None:
        self.file = f
        self.arch = arch

    def __contains__(self, key: str) -> bool:
        return f"{self.arch}.{key}" in self.file.metadata

    def integer(self, key: str, default: int | object = _REQUIRED) -> int:
        get = self.file.metadata.get_int
        return get(f"{self.arch}.{key}") if default is _REQUIRED else get(f"{self.arch}.{key}", default)

    def number(self, key: str, default: float | object = _REQUIRED) -> float:
        get = self.file.metadata.get_float
        return get(f"{self.arch}.{key}") if default is _REQUIRED else get(f"{self.arch}.{key}", default)

    def text(self, key: str, default: str) -> str:
        return self.file.metadata.get_str(f"{self.arch}.{key}", default)

    def flag(self, key: str, default: bool) -> bool:
        return self.file.metadata.get_bool(f"{self.arch}.{key}", default)

    def count(self, key: str, default: int | object = _REQUIRED, *, at_least: int = 1, at_most: int = 1 << 24) -> int:
        """An int within sane limits: what sizes loops and arrays must not come unchecked from a file."""
        value = self.integer(key, default)
        if not at_least <= value <= at_most:
            raise self.error(key, f"a whole number in {at_least}..{at_most}", value)
        return value

    def per_layer(self, key: str, n_layers: int, default: int | object = _REQUIRED, at_least: int = 0) -> list[int]:
        """One number for all layers or an array with one a layer -> a list with one a layer."""
        value = self.file.metadata.get(f"{self.arch}.{key}", default)
        if value is _REQUIRED:
            self.integer(key)  # raises the missing-key error
        if not isinstance(value, (list, array, tuple)):
            return [self.count(key, default, at_least=at_least)] * n_layers
        values = [int(v) for v in value]
        if len(values) < n_layers or min(values, default=0) < at_least:
            raise self.error(key, f"{n_layers} numbers of at least {at_least}, one a layer", values[:8])
        return values[:n_layers]

    def error(self, key: str, expected: str, found: object) -> FormatError:
        return FormatError(f"{self.file.path}: metadata {self.arch}.{key}: expected {expected}, found {found!r}")

    def floats_of(self, tensor: str) -> tuple[float, ...] | None:
        """A small F32 tensor as plain floats (rope factors), or None where the file has none of that name."""
        info = self.file.tensors.get(tensor)
        if info is None:
            return None
        if info.type.name != "F32" or info.n_bytes > 1 << 20:
            raise FormatError(f"{self.file.path}: tensor {tensor}: expected a small F32 vector, found {info.type.name}")
        values = array("f")
        values.frombytes(self.file.raw(info))
        if sys.byteorder == "big":
            values.byteswap()
        return tuple(values)


def tensor_rows(f: GGUFFile, name: str, fallback: int) -> int:
    """Rows of a matrix, such as the vocabulary from token_embd.weight."""
    info = f.tensors.get(name)
    return info.shape[0] if info else fallback
