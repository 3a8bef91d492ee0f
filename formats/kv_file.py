"""A KV cache in a file: token ids, raw bytes in named pieces, and what it belongs to.

    magic | piece | piece | ... | index (JSON) | index offset, index bytes, CRC-32 of the index, magic

A piece starts on 4096 bytes; the index gives its place and CRC-32. The end comes last, so a file that was not written
to its end has none and is refused. Writing goes to a file beside it that takes its place when all is on disk: what was
there before stays whole until then. Reading maps the file.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from localinfer.errors import FormatError
from localinfer.records import dataclass

MAGIC = b"LIKV\x00\x00\x00\x01"
END = struct.Struct("<QQQ8s")
ALIGN = 4096
TOKENS = "tokens"
UNFINISHED = ".unfinished"  # ends the name of a file that is being written

Piece = tuple[str, Iterable[memoryview]]


@dataclass(frozen=True)
class SavedPiece:
    offset: int
    n_bytes: int
    crc: int


class Interrupted(Exception):
    """Writing was given up because something else is more urgent."""


def write_kv_file(
    path: Path,
    identity: Mapping[str, str],
    tokens: Sequence[int],
    pieces: Iterable[Piece],
    extra: Mapping[str, Any],
    go_on: Callable[[], bool] = lambda: True,
) -> int:
    """Replace `path`; returns its bytes. `extra` comes back as it is. OSError, or Interrupted when go_on says no:
    then `path` is what it was."""
    beside = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        with open(beside, "wb") as f:
            os.fchmod(f.fileno(), 0o600)
            _write(f, identity, tokens, pieces, extra, go_on)
            f.flush()
            os.fsync(f.fileno())
            n_bytes = f.tell()
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _sync_folder(path.parent)
    return n_bytes


def _write(
    f: BinaryIO,
    identity: Mapping[str, str],
    tokens: Sequence[int],
    pieces: Iterable[Piece],
    extra: Mapping[str, Any],
    go_on: Callable[[], bool],
) -> None:
    f.write(MAGIC)
    index: dict[str, tuple[int, int, int]] = {}
    ids = array("i", tokens)
    for name, buffers in chain([(TOKENS, [memoryview(ids).cast("B")])], pieces):
        f.write(bytes(-f.tell() % ALIGN))
        start, crc = f.tell(), 0
        for buffer in buffers:
            if not go_on():
                raise Interrupted
            f.write(buffer)
            crc = zlib.crc32(buffer, crc)
        index[name] = (start, f.tell() - start, crc)
    text = json.dumps({"identity": dict(identity), "extra": dict(extra), "pieces": index}).encode()
    at = f.tell()
    f.write(text)
    f.write(END.pack(at, len(text), zlib.crc32(text), MAGIC))


def _sync_folder(folder: Path) -> None:
    """The new name is on disk too, where the system lets folders be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class KVFile:
    """A mapped file whose end and index are sound. Pieces are checked when they are read."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self._data = data
        self._view = memoryview(data)
        try:
            self._read_index()
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: Path) -> KVFile:
        """FormatError where it is not a whole file of this kind; OSError."""
        with open(path, "rb") as f:
            if os.fstat(f.fileno()).st_size < len(MAGIC) + END.size:
                raise _refused(path, "cut short")
            return cls(path, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))

    def _read_index(self) -> None:
        size = len(self._data)
        at, length, crc, magic = END.unpack_from(self._data, size - END.size)
        if self._data[: len(MAGIC)] != MAGIC or magic != MAGIC:
            raise _refused(self.path, "not a saved KV cache of this version, or cut short")
        text = self._data[at : at + length]
        if at + length + END.size != size or zlib.crc32(text) != crc:
            raise _refused(self.path, "damaged index")
        try:
            index = json.loads(text)
            self.identity = {str(k): str(v) for k, v in index["identity"].items()}
            self.extra: dict[str, Any] = dict(index["extra"])
            self._pieces = {name: SavedPiece(*map(int, place)) for name, place in index["pieces"].items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _refused(self.path, "damaged index") from None
        if any(p.offset < 0 or p.n_bytes < 0 or p.offset + p.n_bytes > at for p in self._pieces.values()):
            raise _refused(self.path, "pieces outside the file")
        ids = array("i")
        ids.frombytes(self.piece(TOKENS))
        self.tokens = ids.tolist()

    @property
    def n_bytes(self) -> int:
        return len(self._data)

    def piece(self, name: str, n_bytes: int | None = None) -> memoryview:
        """The bytes of a piece, of the length expected; FormatError where they are not those that were written."""
        place = self._pieces.get(name)
        if place is None or place.n_bytes != (place.n_bytes if n_bytes is None else n_bytes):
            raise _refused(self.path, f"{name}: missing, or of another length than expected")
        view = self._view[place.offset : place.offset + place.n_bytes]
        if zlib.crc32(view) != place.crc:
            raise _refused(self.path, f"{name}: damaged")
        return view

    def close(self) -> None:
        """Views that were handed out must not be used any longer."""
        self._view.release()
        with contextlib.suppress(BufferError):  # somebody still looks into it: it is closed with the last view
            self._data.close()

    def __enter__(self) -> KVFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refused(path: Path, why: str) -> FormatError:
    return FormatError(f"{path}: {why}", "it is only a cache: delete it, and the prompt is read again")
