"""Split models: which files belong together, and what is wrong where they do not.

llama.cpp's gguf-split names shard i of n `PREFIX-0000i-of-0000n.gguf` and writes `split.no` (from 0), `split.count` and
`split.tensors.count` (of all shards) into each. The first shard carries the model's metadata.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path

from localinfer.errors import FormatError
from localinfer.formats.gguf_header import MAGIC, Header, label
from localinfer.formats.gguf_values import INTEGERS

_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.DOTALL | re.IGNORECASE)


def split_number(header: Header, path: Path, key: str, default: int) -> int:
    """A `split.*` value of this shard. FormatError where it is no whole number, or negative."""
    entry = header.entries.get(key)
    if entry is None:
        return default
    is_number = not entry.is_array and entry.type in INTEGERS
    if not is_number or entry.number < 0:
        found = str(entry.number) if is_number else entry.type_name
        raise FormatError(f"{label(path)}: metadata {key!r} at offset {entry.offset}: expected a count, found {found}")
    return int(entry.number)


def shard_paths(path: Path, header: Header) -> list[Path]:
    """The files of the model that `path` is a shard of, in order; just `path` for a model in one file.

    FormatError where the name does not fit the metadata, or a shard is missing.
    """
    count = split_number(header, path, "split.count", 1)
    if count <= 1:
        return [path]
    number = split_number(header, path, "split.no", 0)
    match = _NAME.fullmatch(path.name)
    if not match or (int(match["number"]), int(match["count"])) != (number + 1, count) or number >= count:
        raise FormatError(
            f"{label(path)}: shard {number + 1} of {count}: its name must end in -{number + 1:05d}-of-{count:05d}.gguf",
            "give the shards the names they were published under",
        )
    paths = [path.with_name(f"{match['prefix']}-{i:05d}-of-{count:05d}{match['suffix']}") for i in range(1, count + 1)]
    missing = [ascii(p.name) for p in paths if not os.path.exists(p)]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FormatError(
            f"{label(path)}: {len(missing)} of {count} shards missing: {', '.join(missing[:3])}{more}",
            "put all shards of the model into one folder",
        )
    return paths


def check_shards(paths: Sequence[Path], headers: Sequence[Header]) -> None:
    """FormatError where the shards do not make up one model: another split, another place, tensors twice or missing."""
    mixed = "the shards come from different models or downloads: download them all from one place"
    total = split_number(headers[0], paths[0], "split.tensors.count", -1)
    for i, (path, header) in enumerate(zip(paths, headers, strict=True)):
        where = label(path)
        found = tuple(split_number(header, path, key, -1) for key in ("split.no", "split.count"))
        if found != (i, len(paths)):
            raise FormatError(
                f"{where}: expected split.no {i} and split.count {len(paths)}, found {found[0]} and {found[1]}",
                mixed,
            )
        of_all = split_number(header, path, "split.tensors.count", -1)
        if of_all != total:
            raise FormatError(f"{where}: split.tensors.count is {of_all}, but {total} in {paths[0].name}", mixed)
    n_tensors = sum(len(header.tensors) for header in headers)
    if total not in (-1, n_tensors):
        raise FormatError(
            f"{label(paths[0])}: split.tensors.count is {total}, but the shards hold {n_tensors} tensors", mixed
        )


def check_not_concatenated(data: mmap, path: Path, header: Header) -> None:
    """FormatError where another GGUF follows the last tensor: shards joined with `cat`, whose tensors would be lost."""
    padded = -(-header.data_end // header.alignment) * header.alignment
    for end in {header.data_end, padded}:
        if data[end : end + 4] == MAGIC:
            raise FormatError(
                f"{label(path)}: a second GGUF starts at offset {end}; shards were joined with `cat`",
                "keep the shards as separate files, or join them with llama.cpp's llama-gguf-split --merge",
            )
