"""The header of a .safetensors file: which tensors it holds, of what type and where. Reads no weight.

8 bytes of length, that many bytes of JSON, then the data; offsets count from the start of the data
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from localinfer.errors import FormatError, UsageError

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U64": 8, "I64": 8, "U32": 4,
    "I32": 4, "U16": 2, "I16": 2, "U8": 1, "I8": 1, "BOOL": 1,
}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of the file. `offset` counts from the start of the file."""

    name: str
    dtype: str  # as the format calls it: BF16, U32
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


def read_safetensors(path: Path) -> list[StoredTensor]:
    """The tensors of one file. UsageError where it cannot be read, FormatError where it is not sound."""
    try:
        with path.open("rb") as f:
            file_bytes = os.fstat(f.fileno()).st_size
            length = int.from_bytes(f.read(8), "little")
            if file_bytes < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, file_bytes - 8):
                raise FormatError(
                    f"{path}: expected a safetensors header of 2 to {max(2, file_bytes - 8)} bytes, found {length}",
                    "the file is cut or no safetensors: download it again",
                )
            header = f.read(length)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        table: Any = json.loads(header)
    except (ValueError, RecursionError):
        raise FormatError(f"{path}: expected a header in JSON, found something else", "download it again") from None
    if not isinstance(table, dict):
        raise FormatError(f"{path}: expected a table of tensors, found {type(table).__name__}")
    data_bytes = file_bytes - 8 - length
    return [_tensor(path, name, x, 8 + length, data_bytes) for name, x in table.items() if name != "__metadata__"]


def _tensor(path: Path, name: str, entry: Any, start: int, data_bytes: int) -> StoredTensor:
    try:
        dtype, shape = str(entry["dtype"]), tuple(entry["shape"])
        first, end = entry["data_offsets"]
        sound = all(type(n) is int and n >= 0 for n in (*shape, first, end))
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise FormatError(f"{path}: tensor {name[:80]!r}: expected dtype, shape and data_offsets")
    if dtype not in DTYPE_BYTES:
        raise FormatError(f"{path}: tensor {name[:80]!r}: type {dtype[:40]!r} is not known")
    n_bytes = prod(shape) * DTYPE_BYTES[dtype]
    if end - first != n_bytes or end > data_bytes:
        raise FormatError(
            f"{path}: tensor {name[:80]!r}: expected {n_bytes} bytes within {data_bytes}, found {first}..{end}",
            "the file is cut: download it again",
        )
    return StoredTensor(name, dtype, shape, start + first, n_bytes)
