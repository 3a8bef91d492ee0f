"""GGUFFile: a model file opened for reading, its weights left where they are.

Opening reads the header and maps the file (all files of a split model); no weight is touched until somebody reads
what `raw` returns. Everything that is wrong with a file is found here, before anything is allocated.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from localinfer.errors import BackendError, FormatError, UsageError
from localinfer.formats.gguf_header import Header, TensorInfo, label, read_header
from localinfer.formats.gguf_shards import check_not_concatenated, check_shards, shard_paths
from localinfer.formats.gguf_values import REQUIRED, Entry, Metadata, MetadataValue, ValueType

__all__ = ["REQUIRED", "Entry", "GGUFFile", "Metadata", "MetadataValue", "TensorInfo", "ValueType"]

_MIN_BYTES = 24  # magic, version, two counts


class GGUFFile:
    """A GGUF file, or all shards of one. Use `GGUFFile.open(path)`, as a context manager or with `close()`."""

    path: Path  # as given
    paths: tuple[Path, ...]  # all shards, in order
    version: int
    alignment: int  # of the first shard
    metadata: Metadata  # of the first shard
    tensors: Mapping[str, TensorInfo]  # in the order of the tables, over all shards
    part_bytes: tuple[int, ...]  # length of each shard's file
    file_bytes: int  # of all shards
    tensor_bytes: int  # tensor data alone, without header and padding

    def __init__(self, path: Path, paths: list[Path], maps: list[mmap.mmap], headers: list[Header]) -> None:
        self.path = path
        self.paths = tuple(paths)
        self._maps = maps
        self.version = headers[0].version
        self.alignment = headers[0].alignment
        self.metadata = Metadata(maps[0], label(paths[0]), headers[0].entries)
        self.tensors = MappingProxyType(_merge_tensors(paths, headers))
        self.part_bytes = tuple(len(m) for m in maps)
        self._stats = tuple(_identity(p) for p in paths)
        self.file_bytes = sum(self.part_bytes)
        self.tensor_bytes = sum(info.n_bytes for info in self.tensors.values())

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUFFile:
        """Open a file, or a split model by any of its shards.

        UsageError for a path that cannot be read, FormatError for a file that is no sound GGUF, UnsupportedModel for a
        tensor type that we do not know.
        """
        path = Path(path)
        maps: list[mmap.mmap] = []
        try:
            first = _open_part(path, 0, maps)
            paths = shard_paths(path, first)
            if len(paths) == 1:
                return cls(path, paths, maps, [first])
            maps.pop().close()
            headers = [_open_part(p, i, maps) for i, p in enumerate(paths)]
            check_shards(paths, headers)
            return cls(path, paths, maps, headers)
        except BaseException:
            _unmap(maps)
            raise

    def raw(self, info: TensorInfo) -> memoryview:
        """The tensor's blocks: a read-only slice of the map, `info.n_bytes` long. Copies and touches nothing.

        ValueError once the file is closed.
        """
        if not self._maps:
            raise ValueError(f"{self.path} is closed")
        return memoryview(self._maps[info.part])[info.offset : info.offset + info.n_bytes]

    def forget(self, info: TensorInfo) -> None:
        """Give the memory back that reading this tensor took: the next read goes to the file again."""
        if not self._maps or not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = info.offset // mmap.PAGESIZE * mmap.PAGESIZE
        self._maps[info.part].madvise(mmap.MADV_DONTNEED, start, info.offset + info.n_bytes - start)
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError), open(self.paths[info.part], "rb") as f:
                os.posix_fadvise(f.fileno(), start, info.offset + info.n_bytes - start, os.POSIX_FADV_DONTNEED)

    def will_need(self, info: TensorInfo) -> None:
        """This tensor will be read soon: the system may begin."""
        if self._maps and hasattr(mmap, "MADV_WILLNEED"):
            start = info.offset // mmap.PAGESIZE * mmap.PAGESIZE
            self._maps[info.part].madvise(mmap.MADV_WILLNEED, start, info.offset + info.n_bytes - start)

    def expect_single_rows(self, info: TensorInfo) -> None:
        """Rows of this tensor will be read here and there: the system should read nothing around them."""
        if self._maps and hasattr(mmap, "MADV_RANDOM"):
            start = info.offset // mmap.PAGESIZE * mmap.PAGESIZE
            self._maps[info.part].madvise(mmap.MADV_RANDOM, start, info.offset + info.n_bytes - start)

    def check_unchanged(self) -> None:
        """BackendError where a file is no longer what was opened: its map would show other weights, or none."""
        for path, opened in zip(self.paths, self._stats, strict=True):
            try:
                now = os.stat(path)
            except OSError:
                continue  # removed: what is mapped stays
            if (now.st_dev, now.st_ino) == opened[:2] and (now.st_size, now.st_mtime_ns) != opened[2:]:
                what = "cut" if now.st_size < opened[2] else "changed"
                raise BackendError(f"{label(path)}: the file was {what} while in use", "load the model again")

    def get_int(self, key: str, default: Any = REQUIRED) -> int:
        """`metadata.get_int`: FormatError names file and key where the value is missing or of another type."""
        return self.metadata.get_int(key, default)

    def get_float(self, key: str, default: Any = REQUIRED) -> float:
        """`metadata.get_float`."""
        return self.metadata.get_float(key, default)

    def get_bool(self, key: str, default: Any = REQUIRED) -> bool:
        """`metadata.get_bool`."""
        return self.metadata.get_bool(key, default)

    def get_str(self, key: str, default: Any = REQUIRED) -> str:
        """`metadata.get_str`."""
        return self.metadata.get_str(key, default)

    def get_array(self, key: str, default: Any = REQUIRED, of: type | None = None) -> Any:
        """`metadata.get_array`."""
        return self.metadata.get_array(key, default, of)

    def close(self) -> None:
        """Unmap the files. A map that arrays still look into stays until the last of them is gone."""
        _unmap(self._maps)
        self._maps = []

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        shards = f", {len(self.paths)} shards" if len(self.paths) > 1 else ""
        return f"<GGUFFile {str(self.path)!r}: {len(self.tensors)} tensors{shards}>"


def _open_part(path: Path, part: int, maps: list[mmap.mmap]) -> Header:
    """Map one file and read its header; the map is appended to `maps`."""
    data = _map_file(path)
    maps.append(data)
    header = read_header(data, label(path), part)
    check_not_concatenated(data, path, header)
    return header


def _identity(path: Path) -> tuple[int, int, int, int]:
    """Device, inode, size and time of the last change."""
    s = os.stat(path)
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns


def _unmap(maps: list[mmap.mmap]) -> None:
    for m in maps:
        with suppress(BufferError):  # views exist; the memory goes when they do
            m.close()


def _map_file(path: Path) -> mmap.mmap:
    """A read-only map of a regular file. UsageError where there is none to read; FormatError where it is too short."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before opening: opening a FIFO would wait for a writer
            kind = "a folder" if path.is_dir() else "no regular file"
            raise UsageError(f"{label(path)}: expected a GGUF file, found {kind}", "give the path of a .gguf file")
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{label(path)}: cannot be read: {reason}", "give the path of a .gguf file") from None
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            raise FormatError(f"{label(path)}: expected a GGUF file, found an empty file", "download it again")
        data = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise UsageError(f"{label(path)}: cannot be mapped into memory: {error.strerror}") from None
    finally:
        os.close(fd)
    if len(data) < _MIN_BYTES and data[:4] == b"GGUF"[: len(data)]:
        data.close()
        raise FormatError(
            f"{label(path)}: a GGUF header is {_MIN_BYTES} bytes, but the file ends at {size}", "download it again"
        )
    return data


def _merge_tensors(paths: list[Path], headers: list[Header]) -> dict[str, TensorInfo]:
    """The tables of all shards as one. FormatError where a name appears in two of them."""
    merged: dict[str, TensorInfo] = {}
    for path, header in zip(paths, headers, strict=True):
        for info in header.tensors:
            if info.name in merged:
                other = paths[merged[info.name].part].name
                raise FormatError(
                    f"{label(path)}: tensor {info.name!r} is also in {other}", "shards of different models are mixed"
                )
            merged[info.name] = info
    return merged
