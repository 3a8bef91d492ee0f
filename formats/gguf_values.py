"""GGUF metadata: numbers and text are decoded when a file is opened, arrays when they are read.

A vocabulary is hundreds of thousands of strings that most commands never look at; opening a file only finds out
where each array starts and ends. Text is UTF-8 by the specification, but tokens may be any bytes: what is not
UTF-8 comes back as surrogates (`text.encode("utf-8", "surrogateescape")` gives the bytes again), and
`Metadata.byte_strings` returns the bytes themselves.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Container, Iterator, Mapping
from enum import IntEnum
from math import isfinite
from mmap import mmap
from struct import Struct
from typing import Any, Final

from localinfer.errors import FormatError
from localinfer.records import dataclass, replace


class ValueType(IntEnum):
    """Type of a metadata value; the number is the one in the file, `code` its struct code ("" for text, lists)."""

    code: str
    n_bytes: int  # bytes of one number; 0 where it varies

    def __new__(cls, type_id: int, code: str) -> ValueType:
        member = int.__new__(cls, type_id)
        member._value_ = type_id
        member.code = code
        member.n_bytes = Struct("<" + code).size
        return member

    UINT8 = 0, "B"
    INT8 = 1, "b"
    UINT16 = 2, "H"
    INT16 = 3, "h"
    UINT32 = 4, "I"
    INT32 = 5, "i"
    FLOAT32 = 6, "f"
    BOOL = 7, "?"
    STRING = 8, ""
    ARRAY = 9, ""
    UINT64 = 10, "Q"
    INT64 = 11, "q"
    FLOAT64 = 12, "d"


FLOATS: Final = frozenset({ValueType.FLOAT32, ValueType.FLOAT64})
INTEGERS: Final = frozenset(t for t in ValueType if t.code and t.code in "BbHhIiQq")
NUMBERS: Final = FLOATS | INTEGERS
_ELEMENT_TYPES: Final[dict[type, frozenset[ValueType]]] = {
    str: frozenset({ValueType.STRING}),
    bool: frozenset({ValueType.BOOL}),
    int: INTEGERS,
    float: NUMBERS,
}
MetadataArray = list[str] | list[bool] | array
MetadataValue = int | float | bool | str | MetadataArray
REQUIRED: Final[Any] = object()  # default of the typed getters: the key must be there
_EAGER_BYTES: Final = 2**20  # text decoded at once, so that it outlives the file; templates are some 10 KB
_length_at: Final = Struct("<Q").unpack_from


@dataclass(frozen=True)
class Entry:
    """Where one metadata value lies. For an array, `type` is that of its elements."""

    key: str
    type: ValueType
    is_array: bool
    offset: int  # of the number, of a string's first byte, of an array's first element; from the file's start
    count: int  # elements of an array, bytes of a string, 1 for a number
    number: int | float | bool = 0  # the value, where it is a number

    @property
    def type_name(self) -> str:
        """`uint32`, `string`, `array of 262144 string`: for messages and listings."""
        name = self.type.name.lower()
        return f"array of {self.count} {name}" if self.is_array else name


class Metadata(Mapping[str, MetadataValue]):
    """The key-value part of a file: a Mapping whose arrays are decoded anew at each reading.

    Numbers and text stay readable after the file is closed; arrays (and a text of over 1 MiB) do not: ValueError.
    Numeric arrays come as `array.array`, arrays of text as list[str], arrays of booleans as list[bool].
    The `get_*` methods check the type and raise a FormatError that names file and key.
    """

    def __init__(self, data: mmap, path: str, entries: dict[str, Entry]) -> None:
        self._data = data
        self._path = path
        self._entries = entries
        self._texts: dict[str, str] = {}
        self._decode_texts()

    def __getitem__(self, key: str) -> MetadataValue:
        entry = self._entries[key]
        if entry.is_array:
            return self._array(entry)
        return self._text(entry) if entry.type is ValueType.STRING else entry.number

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __repr__(self) -> str:
        return f"<Metadata of {self._path}: {len(self)} keys>"

    def entry(self, key: str) -> Entry:
        """Type, place and length of a value, without decoding it. KeyError where the key is absent."""
        return self._entries[key]

    def first(self, key: str, n: int) -> MetadataArray:
        """The first n elements of an array, without decoding the rest. KeyError where the key is absent."""
        entry = self._entries[key]
        return self._array(replace(entry, count=min(n, entry.count)))

    def get_int(self, key: str, default: Any = REQUIRED) -> int:
        """A whole number of any width; a boolean is none."""
        return self._single(key, default, INTEGERS, "a whole number")

    def get_float(self, key: str, default: Any = REQUIRED) -> float:
        """A finite number; whole numbers are taken too."""
        value = self._single(key, default, NUMBERS, "a number")
        if key not in self._entries:
            return value
        if not isfinite(value):
            raise FormatError(f"{self._path}: metadata {key!r}: expected a finite number, found {value}")
        return float(value)

    def get_bool(self, key: str, default: Any = REQUIRED) -> bool:
        """True or False."""
        return self._single(key, default, (ValueType.BOOL,), "true or false")

    def get_str(self, key: str, default: Any = REQUIRED) -> str:
        """Text; bytes that are not UTF-8 come as surrogates."""
        return self._single(key, default, (ValueType.STRING,), "text")

    def get_array(self, key: str, default: Any = REQUIRED, of: type | None = None) -> Any:
        """An array; `of` = str, int, float or bool asks for that kind of elements (float takes integers too)."""
        wanted = f"an array of {of.__name__}" if of else "an array"
        if key not in self._entries:
            return self._default(key, default, wanted)
        entry = self._entries[key]
        if not entry.is_array or (of and entry.type not in _ELEMENT_TYPES[of]):
            raise self._wrong(entry, wanted)
        return self._array(entry)

    def byte_strings(self, key: str) -> list[bytes]:
        """An array of text as the bytes in the file. FormatError where it is none or absent."""
        wanted = "an array of str"
        if key not in self._entries:
            return self._default(key, REQUIRED, wanted)
        entry = self._entries[key]
        if not entry.is_array or entry.type is not ValueType.STRING:
            raise self._wrong(entry, wanted)
        return _byte_strings(self._data, entry.offset, entry.count)

    def _single(self, key: str, default: Any, types: Container[ValueType], wanted: str) -> Any:
        """A value that is no array and of one of `types`; the default where the key is absent."""
        if key not in self._entries:
            return self._default(key, default, wanted)
        entry = self._entries[key]
        if entry.is_array or entry.type not in types:
            raise self._wrong(entry, wanted)
        return self[key]

    def _default(self, key: str, default: Any, wanted: str) -> Any:
        if default is REQUIRED:
            raise FormatError(f"{self._path}: metadata {key!r} is missing; expected {wanted}")
        return default

    def _wrong(self, entry: Entry, wanted: str) -> FormatError:
        return FormatError(
            f"{self._path}: metadata {entry.key!r} at offset {entry.offset}: expected {wanted}, found {entry.type_name}"
        )

    def _decode_texts(self) -> None:
        left = _EAGER_BYTES
        for entry in self._entries.values():
            if entry.type is ValueType.STRING and not entry.is_array and entry.count <= left:
                left -= entry.count
                self._text(entry)

    def _text(self, entry: Entry) -> str:
        if entry.key not in self._texts:
            raw = self._data[entry.offset : entry.offset + entry.count]
            self._texts[entry.key] = raw.decode("utf-8", "surrogateescape")
        return self._texts[entry.key]

    def _array(self, entry: Entry) -> MetadataArray:
        if entry.type is ValueType.STRING:
            return _strings(self._data, entry.offset, entry.count)
        end = entry.offset + entry.count * entry.type.n_bytes
        if entry.type is ValueType.BOOL:
            return [byte != 0 for byte in self._data[entry.offset : end]]
        values = array(entry.type.code)
        with memoryview(self._data) as whole, whole[entry.offset : end] as raw:
            values.frombytes(raw)
        if sys.byteorder == "big":
            values.byteswap()
        return values


def _strings(data: mmap, pos: int, count: int) -> list[str]:
    """`count` strings, each a uint64 length and that many bytes; the bounds were checked when the file was opened."""
    out: list[str] = []
    append = out.append
    for _ in range(count):
        (length,) = _length_at(data, pos)
        pos += 8
        end = pos + length
        try:
            append(data[pos:end].decode())  # without arguments: CPython's short way
        except UnicodeDecodeError:
            append(data[pos:end].decode("utf-8", "surrogateescape"))
        pos = end
    return out


def _byte_strings(data: mmap, pos: int, count: int) -> list[bytes]:
    """As _strings, undecoded."""
    out: list[bytes] = []
    append = out.append
    for _ in range(count):
        (length,) = _length_at(data, pos)
        pos += 8
        end = pos + length
        append(data[pos:end])
        pos = end
    return out
