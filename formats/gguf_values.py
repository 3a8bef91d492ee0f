"""GGUF metadata: numbers are decoded when a file is opened, strings and arrays when they are read.

A vocabulary is hundreds of thousands of strings that most commands never look at; opening a file only finds out
where each array starts and ends. Text is UTF-8 by the specification, but tokens may be any bytes: what is not
UTF-8 comes back as surrogates (`text.encode("utf-8", "surrogateescape")` gives the bytes again), and
`Metadata.byte_strings` returns the bytes themselves.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import isfinite
from mmap import mmap
from struct import Struct
from typing import Any, Final

from localinfer.errors import FormatError


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


FLOATS: Final = (ValueType.FLOAT32, ValueType.FLOAT64)
MetadataValue = int | float | bool | str | list[str] | list[bool] | array
REQUIRED: Final[Any] = object()  # default of the typed getters: the key must be there
_length_at: Final = Struct("<Q").unpack_from


@dataclass(frozen=True, slots=True)
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
    """The key-value part of a file: a Mapping whose arrays are decoded anew at each reading, strings once.

    Numeric arrays come as `array.array`, arrays of text as list[str], arrays of booleans as list[bool].
    The `get_*` methods check the type and raise a FormatError that names file and key.
    """

    def __init__(self, data: mmap, path: str, entries: dict[str, Entry]) -> None:
        self._data = data
        self._path = path
        self._entries = entries
        self._texts: dict[str, str] = {}

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

    def get_int(self, key: str, default: Any = REQUIRED) -> int:
        """A whole number of any width; a boolean is none."""
        value = self._checked(key, default, "a whole number")
        if value is default or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._wrong(key, "a whole number")

    def get_float(self, key: str, default: Any = REQUIRED) -> float:
        """A finite number; whole numbers are taken too."""
        value = self._checked(key, default, "a number")
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number")
        if not isfinite(value):
            raise FormatError(f"{self._path}: metadata {key!r}: expected a finite number, found {value}")
        return float(value)

    def get_bool(self, key: str, default: Any = REQUIRED) -> bool:
        """True or False."""
        value = self._checked(key, default, "true or false")
        if value is default or isinstance(value, bool):
            return value
        raise self._wrong(key, "true or false")

    def get_str(self, key: str, default: Any = REQUIRED) -> str:
        """Text; bytes that are not UTF-8 come as surrogates."""
        value = self._checked(key, default, "text")
        if value is default or isinstance(value, str):
            return value
        raise self._wrong(key, "text")

    def get_array(self, key: str, default: Any = REQUIRED, of: type | None = None) -> Any:
        """An array; `of` = str, int, float or bool asks for that kind of elements (float takes integers too)."""
        wanted = f"an array of {of.__name__}" if of else "an array"
        if key not in self._entries:
            return self._checked(key, default, wanted)
        entry = self._entries[key]
        if not entry.is_array or (of and of not in _element_kinds(entry.type)):
            raise self._wrong(key, wanted)
        return self._array(entry)

    def byte_strings(self, key: str) -> list[bytes]:
        """An array of text as the bytes in the file. FormatError where it is none or absent."""
        if key not in self._entries:
            return self._checked(key, REQUIRED, "an array of str")
        entry = self._entries[key]
        if not entry.is_array or entry.type is not ValueType.STRING:
            raise self._wrong(key, "an array of str")
        return _byte_strings(self._data, entry.offset, entry.count)

    def _checked(self, key: str, default: Any, wanted: str) -> Any:
        """The value, or the default where the key is absent; FormatError where there is no default."""
        if key in self._entries:
            entry = self._entries[key]
            return None if entry.is_array else self[key]  # no single value: the caller's type check refuses None
        if default is REQUIRED:
            raise FormatError(f"{self._path}: metadata {key!r} is missing; expected {wanted}")
        return default

    def _wrong(self, key: str, wanted: str) -> FormatError:
        entry = self._entries[key]
        return FormatError(
            f"{self._path}: metadata {key!r} at offset {entry.offset}: expected {wanted}, found {entry.type_name}"
        )

    def _text(self, entry: Entry) -> str:
        if entry.key not in self._texts:
            raw = self._data[entry.offset : entry.offset + entry.count]
            self._texts[entry.key] = raw.decode("utf-8", "surrogateescape")
        return self._texts[entry.key]

    def _array(self, entry: Entry) -> list[str] | list[bool] | array:
        if entry.type is ValueType.STRING:
            return _strings(self._data, entry.offset, entry.count)
        raw = self._data[entry.offset : entry.offset + entry.count * entry.type.n_bytes]
        if entry.type is ValueType.BOOL:
            return [byte != 0 for byte in raw]
        values = array(entry.type.code, raw)
        if sys.byteorder == "big":
            values.byteswap()
        return values


def _element_kinds(value_type: ValueType) -> tuple[type, ...]:
    """The Python types an array of `value_type` may be asked for as."""
    if value_type is ValueType.STRING:
        return (str,)
    if value_type is ValueType.BOOL:
        return (bool,)
    return (float,) if value_type in FLOATS else (int, float)


def _strings(data: mmap, pos: int, count: int) -> list[str]:
    """`count` strings, each a uint64 length and that many bytes; the bounds were checked when the file was opened."""
    out: list[str] = []
    append = out.append
    for _ in range(count):
        (length,) = _length_at(data, pos)
        pos += 8
        end = pos + length
        append(str(data[pos:end], "utf-8", "surrogateescape"))
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
