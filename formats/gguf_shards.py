"""Split models: which files belong together, and what is wrong where they do not.

llama.cpp's gguf-split names shard i of n `PREFIX-0000i-of-0000n.gguf` and writes `split.no` (from 0), `split.count` and
`split.tensors.count` (of all shards) into each. The first shard carries the model's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path

from localinfer.errors import FormatError
from localinfer.formats.gguf_header import MAGIC, Header
from localinfer.formats.gguf_values import ValueType

_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.DOTALL | re.IGNORECASE)
_WHOLE_NUMBERS = tuple(t for t in ValueType if t.code and t.code in "BbHhIiQq")


def split_number(header: Header, path: str, key: str, default: int) -> int:
    """A `split.*` value of this shard. FormatError where it is no whole number."""
    entry = header.entries.get(key)
    if entry is None:
        return default
    if entry.is_array or entry.type not in _WHOLE_NUMBERS or entry.number < 0:
        found = entry.type_name if entry.is_array or entry.type not in _WHOLE_NUMBERS else str(entry.number)
        raise FormatError(f"{path}: metadata {key!r} at offset {entry.offset}: expected a count, found {found}")
    return int(entry.number)


def shard_paths(path: Path, header: Header) -> list[Path]:
    """The files of the model that `path` is a shard of, in order; just `path` for a model in one file.

    FormatError where the name does not fit the metadata, or a shard is missing.
    """
    count = split_number(header, str(path), "split.count", 1)
    if count <= 1:
        return [path]
    number = split_number(header, str(path), "split.no", 0)
    match = _NAME.fullmatch(path.name)
    if not match or (int(match["number"]), int(match["count"])) != (number + 1, count):
        raise FormatError(
            f"{path}: is shard {number + 1} of {count}, so its name must end in -{number + 1:05d}-of-{count:05d}.gguf",
            "give the shards the names they were published under",
        )
    paths = [path.with_name(f"{match['prefix']}-{i:05d}-of-{count:05d}{match['suffix']}") for i in range(1, count + 1)]
    missing = [p.name for p in paths if not p.exists()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FormatError(
            f"{path}: {len(missing)} of {count} shards missing: {', '.join(missing[:3])}{more}",
            "put all shards of the model into one folder",
        )
    return paths


def check_shards(paths: Sequence[Path], headers: Sequence[Header]) -> None:
    """FormatError where the shards do not make up one model: another split, another place, tensors twice or missing."""
    mixed = "the shards come from different models or downloads: download them all from one place"
    total = split_number(headers[0], str(paths[0]), "split.tensors.count", -1)
    for i, (path, header) in enumerate(zip(paths, headers, strict=True)):
        found = tuple(split_number(header, str(path), key, -1) for key in ("split.no", "split.count"))
        if found != (i, len(paths)):
            raise FormatError(
                f"{path}: expected split.no {i} and split.count {len(paths)}, found {found[0]} and {found[1]}", mixed
            )
        of_all = split_number(header, str(path), "split.tensors.count", -1)
        if of_all != total:
            raise FormatError(f"{path}: split.tensors.count is {of_all}, but {total} in {paths[0].name}", mixed)
    n_tensors = sum(len(header.tensors) for header in headers)
    if total not in (-1, n_tensors):
        raise FormatError(f"{paths[0]}: split.tensors.count is {total}, but the shards hold {n_tensors} tensors", mixed)


def check_not_concatenated(data: mmap, path: str, header: Header) -> None:
    """FormatError where another GGUF follows the last tensor: shards joined with `cat`, whose tensors would be lost."""
    padded = -(-header.data_end // header.alignment) * header.alignment
    for end in {header.data_end, padded}:
        if data[end : end + 4] == MAGIC:
            raise FormatError(
                f"{path}: a second GGUF starts at offset {end}; shards were joined with `cat`",
                "keep the shards as separate files, or join them with llama.cpp's llama-gguf-split --merge",
            )
