"""Writes small GGUF files for tests, sound ones and hostile ones. Written from the format's description, not from
the reader, so that one mistake cannot sit on both sides."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Numbers as in the format's description; deliberately not imported from the reader.
NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)


@dataclass(frozen=True)
class Typed:
    """A metadata value with its type said aloud: Typed(UINT16, 3), Typed(ARRAY, [..], UINT8)."""

    type: int
    value: Any
    element: int = UINT32


@dataclass(frozen=True)
class Tensor:
    """A tensor to write. `shape` in numpy order; `offset` overrides the place in the data, `dims` the written shape."""

    name: str | bytes
    type: int
    shape: Sequence[int]
    data: bytes
    offset: int | None = None
    dims: Sequence[int] | None = None


def string(text: str | bytes) -> bytes:
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
    return struct.pack("<Q", len(raw)) + raw


def value(v: Any) -> bytes:
    """Type id and value; the type of a plain Python value is guessed as converters do."""
    typed = v if isinstance(v, Typed) else _guess(v)
    return struct.pack("<I", typed.type) + _payload(typed)


def _payload(v: Typed) -> bytes:
    if v.type == STRING:
        return string(v.value)
    if v.type == ARRAY:
        items = b"".join(_payload(x if isinstance(x, Typed) else Typed(v.element, x)) for x in v.value)
        return struct.pack("<IQ", v.element, len(v.value)) + items
    return struct.pack("<" + NUMBER_CODES[v.type], v.value)


def _guess(v: Any) -> Typed:
    if isinstance(v, bool):
        return Typed(BOOL, v)
    if isinstance(v, int):
        return Typed(INT32 if v < 0 else UINT32 if v < 2**32 else UINT64, v)
    if isinstance(v, float):
        return Typed(FLOAT32, v)
    if isinstance(v, str | bytes):
        return Typed(STRING, v)
    if isinstance(v, Sequence):
        return Typed(ARRAY, v, _guess(v[0]).type if len(v) else STRING)
    raise TypeError(f"no GGUF type for {type(v).__name__}")


def header(metadata: Mapping[str, Any], tensors: Sequence[Tensor], version: int = 3, alignment: int = 32) -> bytes:
    """Everything before the padding. `alignment` only spaces the tensors; put general.alignment into the metadata."""
    out = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    out += [string(key) + value(v) for key, v in metadata.items()]
    offset = 0
    for t in tensors:
        dims = list(t.dims if t.dims is not None else reversed(t.shape))
        out += [string(t.name), struct.pack(f"<I{len(dims)}Q", len(dims), *dims)]
        out.append(struct.pack("<IQ", t.type, offset if t.offset is None else t.offset))
        offset += padded(len(t.data), alignment)
    return b"".join(out)


def padded(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


def gguf_bytes(
    metadata: Mapping[str, Any] | None = None, tensors: Sequence[Tensor] = (), version: int = 3, alignment: int = 32
) -> bytes:
    """A whole file. An alignment other than 32 is written as general.alignment too."""
    metadata = dict(metadata or {})
    if alignment != 32:
        metadata.setdefault("general.alignment", alignment)
    head = header(metadata, tensors, version, alignment)
    out = bytearray(head.ljust(padded(len(head), alignment), b"\0"))
    start = len(out)
    for t in tensors:
        if t.offset is not None:
            out.extend(bytes(max(0, start + t.offset - len(out))))
        out.extend(t.data.ljust(padded(len(t.data), alignment), b"\0"))
    return bytes(out)


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any] | None = None,
    tensors: Sequence[Tensor] = (),
    version: int = 3,
    alignment: int = 32,
) -> Path:
    """gguf_bytes to a file; returns the path."""
    path.write_bytes(gguf_bytes(metadata, tensors, version, alignment))
    return path


def write_split(
    folder: Path,
    prefix: str,
    metadata: Mapping[str, Any],
    shards: Sequence[Sequence[Tensor]],
    **split_overrides: Any,
) -> list[Path]:
    """One file a shard, named and marked as gguf-split does; the first carries the metadata.

    `split_overrides`: split_no, split_count, split_tensors_count replace what every shard would say.
    """
    n_tensors = sum(len(shard) for shard in shards)
    paths = []
    for i, shard in enumerate(shards):
        keys = {
            "split.no": Typed(UINT16, split_overrides.get("split_no", i)),
            "split.count": Typed(UINT16, split_overrides.get("split_count", len(shards))),
            "split.tensors.count": Typed(INT32, split_overrides.get("split_tensors_count", n_tensors)),
        }
        path = folder / f"{prefix}-{i + 1:05d}-of-{len(shards):05d}.gguf"
        paths.append(write_gguf(path, {**(metadata if i == 0 else {}), **keys}, shard))
    return paths


def f32_tensor(name: str, shape: Sequence[int], fill: float = 1.0) -> Tensor:
    """A tensor of equal float32 values."""
    n = 1
    for size in shape:
        n *= size
    return Tensor(name, 0, shape, struct.pack("<f", fill) * n)
