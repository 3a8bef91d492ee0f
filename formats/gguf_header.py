"""Reading one GGUF header: counts, metadata, tensor table. Nothing in the file is trusted.

Layout (versions 2 and 3, little-endian): magic, u32 version, u64 tensor count, u64 metadata count; the metadata, each
a string key, u32 type, value; the tensor table, each a string name, u32 dimension count, u64 dimensions (the row
length first), u32 type, u64 offset from the start of the data; zero bytes up to `general.alignment`; the data.
A string is a u64 length and its bytes, an array a u32 element type, a u64 count, and its elements.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import repeat
from math import prod
from mmap import mmap
from operator import length_hint
from pathlib import Path
from typing import NoReturn

from localinfer.errors import FormatError
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.gguf_foreign import not_a_gguf
from localinfer.formats.gguf_values import Entry, ValueType
from localinfer.records import dataclass

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

# Bounds far above real files (largest known: 15 MB, 45,000 tensors, 650,000 strings), so that a header made to waste
# time and memory is refused at once.
MAX_HEADER_BYTES = 128 * 2**20
MAX_METADATA = 2**14
MAX_TENSORS = 2**16
MAX_ELEMENTS = 2**22  # of one array
MAX_STRINGS = 2**21  # in all arrays
MAX_KEY_BYTES = 1024
MAX_NAME_BYTES = 256
MAX_DIMENSIONS = 4

_MIN_METADATA_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 4 + 8

_TENSOR_TYPES = {int(t): t for t in GGMLType}
_VALUE_TYPES = {int(t): t for t in ValueType}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_NUMBERS = {t: struct.Struct("<" + t.code) for t in ValueType if t.n_bytes}
_DIMENSIONS = {n: struct.Struct(f"<{n}Q") for n in range(MAX_DIMENSIONS + 1)}
_TYPE_AND_OFFSET = struct.Struct("<IQ")
_INCOMPLETE = "the file is cut short: download it again"


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file: where its blocks are and what they mean."""

    name: str
    type: GGMLType
    shape: tuple[int, ...]  # numpy order (..., out, in): the last is the length of a row
    part: int  # which shard, from 0
    offset: int  # of the first byte, from the start of that shard's file
    n_bytes: int

    @property
    def n_values(self) -> int:
        """Product of the shape."""
        return prod(self.shape)


@dataclass(frozen=True)
class Header:
    """What one shard's header says."""

    version: int
    alignment: int
    entries: dict[str, Entry]
    tensors: tuple[TensorInfo, ...]
    data_start: int  # offset of the tensor data
    data_end: int  # where the last tensor ends


def read_header(data: mmap, path: str, part: int = 0) -> Header:
    """Parse and check everything before the weights. FormatError names file, field and offset."""
    not_a_gguf_unless(data, path)
    return HeaderReader(data, path, len(data)).read(part)


def not_a_gguf_unless(data: mmap | bytes, path: str) -> None:
    """FormatError that says what the file is instead, where it is no GGUF."""
    if data[:4] != MAGIC:
        raise not_a_gguf(path, data[:512])


class HeaderReader:
    """A position in the header and the fields that are read there. `size` is the length of the whole file."""

    def __init__(self, data: mmap | bytes, path: str, size: int) -> None:
        self.data = data
        self.path = path
        self.size = size
        self.pos = 4
        self.strings_left = MAX_STRINGS

    def read(self, part: int) -> Header:
        version = self.version()
        n_tensors = self.count("tensor count", MAX_TENSORS, _MIN_TENSOR_BYTES)
        n_metadata = self.count("metadata count", MAX_METADATA, _MIN_METADATA_BYTES)
        entries = self.metadata(n_metadata)
        alignment = self.alignment(entries)
        table = self.tensor_table(n_tensors)
        data_start = -(-self.pos // alignment) * alignment
        tensors = tuple(self.placed(row, part, alignment, data_start) for row in table)
        data_end = self.check_overlaps(tensors, data_start)
        return Header(version, alignment, entries, tensors, data_start, data_end)

    # -- fields ---------------------------------------------------------------------------------------------------

    def version(self) -> int:
        version = self.u32("version")
        if version in VERSIONS:
            return version
        if version == 1:
            self.fail("GGUF version 1 at offset 4; localinfer reads 2 and 3", "download a newer file of this model")
        if version and not version & 0xFFFF:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            self.fail(f"big-endian GGUF (version {swapped} at offset 4)", "download the little-endian file")
        self.fail(f"GGUF version {version} at offset 4; localinfer reads 2 and 3", "a newer localinfer may read it")

    def count(self, field: str, maximum: int, min_bytes: int) -> int:
        at, value = self.pos, self.u64(field)
        possible = (self.size - self.pos) // min_bytes
        if value > maximum:
            self.fail(f"{field} {value} at offset {at} is over the limit of {maximum}")
        if value > possible:
            self.fail(f"{field} {value} at offset {at}, but {self.size} bytes hold {possible} at most", _INCOMPLETE)
        return value

    def metadata(self, n: int) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for i in range(n):
            at = self.pos
            key = self.short_string(f"key of metadata {i}", MAX_KEY_BYTES)
            if key in entries:
                self.fail(f"metadata {key!r} at offset {at} appears twice")
            entries[key] = self.value(key)
        return entries

    def value(self, key: str) -> Entry:
        field = f"metadata {key!r}"
        value_type = self.value_type(field)
        if value_type is ValueType.ARRAY:
            return self.array(key, field)
        if value_type is ValueType.STRING:
            length = self.u64(field, ": length")
            start = self.skip(length, field)
            return Entry(key, value_type, False, start, length)
        at = self.skip(value_type.n_bytes, field)
        if value_type is ValueType.BOOL and self.data[at] > 1:
            self.fail(f"{field} at offset {at}: a boolean must be 0 or 1, found {self.data[at]}")
        (number,) = _NUMBERS[value_type].unpack_from(self.data, at)
        return Entry(key, value_type, False, at, 1, number)

    def array(self, key: str, field: str) -> Entry:
        at = self.pos
        value_type = self.value_type(f"{field}: element type")
        if value_type is ValueType.ARRAY:
            self.fail(f"{field} at offset {at}: an array of arrays; localinfer reads flat arrays")
        count = self.u64(field, ": count")
        if count > MAX_ELEMENTS:
            self.fail(f"{field} at offset {at}: {count} elements; the most in an array is {MAX_ELEMENTS}")
        start = self.pos
        if value_type is ValueType.STRING:
            self.skip_strings(count, field)
        else:
            self.skip(count * value_type.n_bytes, f"{field}: array of {count}")
        return Entry(key, value_type, True, start, count)

    def value_type(self, field: str) -> ValueType:
        at, type_id = self.pos, self.u32(field, ": type")
        if type_id not in _VALUE_TYPES:
            self.fail(f"{field} at offset {at}: unknown value type {type_id}")
        return _VALUE_TYPES[type_id]

    def alignment(self, entries: dict[str, Entry]) -> int:
        entry = entries.get("general.alignment")
        if entry is None:
            return DEFAULT_ALIGNMENT
        where = f"metadata 'general.alignment' at offset {entry.offset}"
        if entry.is_array or entry.type is not ValueType.UINT32:
            self.fail(f"{where}: expected uint32, found {entry.type_name}")
        value = int(entry.number)
        if value <= 0 or (value & (value - 1) and value % 8):
            self.fail(f"{where}: expected a power of two or a multiple of 8, found {value}")
        return value

    def tensor_table(self, n: int) -> list[tuple[str, tuple[int, ...], int, int, int]]:
        """n times (name, shape in file order, type id, offset in the data, offset of the row itself)."""
        table = []
        names = set()
        for i in range(n):
            at = self.pos
            name = self.short_string(f"name of tensor {i}", MAX_NAME_BYTES)
            if name in names:
                self.fail(f"tensor {name!r} at offset {at} appears twice")
            names.add(name)
            field = f"tensor {name!r}"
            n_dimensions = self.u32(field, ": dimension count")
            if n_dimensions > MAX_DIMENSIONS:
                self.fail(f"{field} at offset {at}: {n_dimensions} dimensions; the most is {MAX_DIMENSIONS}")
            shape = _DIMENSIONS[n_dimensions].unpack_from(self.data, self.skip(8 * n_dimensions, field, ": shape"))
            if 0 in shape:
                self.fail(f"{field} at offset {at}: shape {list(shape)} has a dimension of 0")
            type_id, offset = _TYPE_AND_OFFSET.unpack_from(self.data, self.skip(12, field, ": type and offset"))
            table.append((name, shape, type_id, offset, at))
        return table

    def placed(
        self, row: tuple[str, tuple[int, ...], int, int, int], part: int, alignment: int, data_start: int
    ) -> TensorInfo:
        """A row of the table, checked against type, alignment and length of the file."""
        name, file_shape, type_id, relative, at = row
        kind = _TENSOR_TYPES.get(type_id)
        if kind is None:  # `or` would not do: F32 is 0
            kind = GGMLType.from_id(type_id, self.tensor_at(name, at))
        shape = file_shape[::-1] or (1,)
        n_bytes = prod(shape) // kind.block_values * kind.block_bytes
        offset = data_start + relative
        if shape[-1] % kind.block_values:
            expected = f"rows of a multiple of {kind.block_values} values"
            raise FormatError(f"{self.tensor_at(name, at)}: {kind.name} has {expected}, found {shape[-1]}")
        if relative % alignment:
            raise FormatError(
                f"{self.tensor_at(name, at)}: its data offset {relative} is no multiple of the alignment {alignment}"
            )
        if offset + n_bytes > self.size:
            found = f"its data is {n_bytes} bytes at {offset}, but the file ends at {self.size}"
            raise FormatError(f"{self.tensor_at(name, at)}: {found}", _hint_when_cut(self.path))
        return TensorInfo(name, kind, shape, part, offset, n_bytes)

    def tensor_at(self, name: str, at: int) -> str:
        return f"{self.path}: tensor {name!r} at offset {at}"

    def check_overlaps(self, tensors: tuple[TensorInfo, ...], data_start: int) -> int:
        """FormatError where two tensors share bytes; otherwise the end of the last one."""
        end, previous = data_start, None
        for info in sorted(tensors, key=lambda t: t.offset):
            if previous and info.offset < end:
                self.fail(f"tensors {previous.name!r} and {info.name!r} overlap at offset {info.offset}")
            end, previous = info.offset + info.n_bytes, info
        return end

    # -- bytes ----------------------------------------------------------------------------------------------------

    def skip(self, n: int, field: str, part: str = "") -> int:
        """Step over n bytes; the offset where they start. `field` and `part` name them, put together only to fail."""
        start = self.pos
        end = start + n
        if end > self.size or end > MAX_HEADER_BYTES:
            what = f"{field}{part} is {n} bytes at offset {start}"
            if end > self.size:
                self.fail(f"{what}, but the file ends at {self.size}", _INCOMPLETE)
            self.fail(f"{what}: a header of over {MAX_HEADER_BYTES} bytes")
        self.pos = end
        return start

    def u32(self, field: str, part: str = "") -> int:
        return _U32.unpack_from(self.data, self.skip(4, field, part))[0]

    def u64(self, field: str, part: str = "") -> int:
        return _U64.unpack_from(self.data, self.skip(8, field, part))[0]

    def short_string(self, field: str, maximum: int) -> str:
        """A key or a name: at least one byte, UTF-8."""
        at, length = self.pos, self.u64(field, ": length")
        if not 0 < length <= maximum:
            self.fail(f"{field} at offset {at}: expected 1 to {maximum} bytes, found {length}")
        start = self.skip(length, field)
        try:
            return str(self.data[start : self.pos], "utf-8")
        except UnicodeDecodeError:
            self.fail(f"{field} at offset {start} is not UTF-8")

    def skip_strings(self, count: int, field: str) -> None:
        """Step over `count` strings. This loop is most of the time that opening a file takes."""
        if count > self.strings_left:
            self.fail(f"{field} at offset {self.pos}: {count} strings; the most in a file is {MAX_STRINGS}")
        if count * 8 > self.size - self.pos:
            self.fail(f"{field} at offset {self.pos}: {count} strings, but the file ends at {self.size}", _INCOMPLETE)
        self.strings_left -= count
        start = pos = self.pos
        left = repeat(None, count)
        with _words(self.data) as words:
            try:
                for _ in left:
                    pos += words[pos & 7][pos >> 3] + 8
            except (IndexError, OverflowError):  # the next length lies beyond the end
                self.strings_end_beyond(start, pos, count - 1 - length_hint(left), count, field)
        self.skip(pos - self.pos, field)

    def strings_end_beyond(self, start: int, pos: int, seen: int, count: int, field: str) -> None:
        """Of `count` strings that begin at `start`, `seen` end at `pos`, and the next length is beyond the end."""
        self.skip(pos + 8 - start, field)

    def fail(self, message: str, hint: str = "") -> NoReturn:
        raise FormatError(f"{self.path}: {message}", hint)


@contextmanager
def _words(data: mmap | bytes) -> Iterator[list[memoryview]]:
    """The header as uint64 from each of the first eight offsets: the one at `pos` is words[pos & 7][pos >> 3].

    Twice as quick as a call of struct.unpack_from, and no copy.
    """
    with ExitStack() as stack:
        whole = stack.enter_context(memoryview(data))
        size = min(len(data), MAX_HEADER_BYTES)
        parts = [stack.enter_context(whole[i : i + (size - i) // 8 * 8]) for i in range(8)]
        yield [stack.enter_context(part.cast("Q")) for part in parts]


def label(path: Path) -> str:
    """A path as one line of a message."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def _hint_when_cut(path: str) -> str:
    """Byte-wise pieces (x.gguf-split-a, x.gguf.part1of2) were meant to be joined; other short files are downloads."""
    name = path.rsplit("/", 1)[-1].lower()
    if "-split-" in name or ".part" in name:
        return "this looks like a piece of a file cut by bytes: join the pieces in order with `cat` first"
    return _INCOMPLETE
