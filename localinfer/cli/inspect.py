"""`localinfer inspect MODEL`: what a file says about itself: metadata, tensor table, types, shards. Reads no weight."""

from __future__ import annotations

import argparse
import difflib
import json
from array import array
from math import isfinite
from typing import TYPE_CHECKING, Any

from localinfer.cli.open_anywhere import open_anywhere
from localinfer.cli.options import add_model
from localinfer.errors import UsageError
from localinfer.formats.checkpoint import Checkpoint
from localinfer.formats.gguf import MetadataValue

if TYPE_CHECKING:
    from localinfer.formats.model_file import ModelFile


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "inspect",
        help="metadata, tensor table, types, shards",
        description="What a model file says about itself. Reads the header only; shapes are (..., out, in).",
    )
    add_model(parser)
    parser.add_argument("--key", metavar="NAME", help="print one metadata value in full, as tokenizer.chat_template")
    parser.add_argument("--json", action="store_true", help="print JSON, with all arrays in full")


def run(args: argparse.Namespace) -> int:
    """Print the report; 0. Raises the error tree."""
    with open_anywhere(args.model) as file:
        if args.key is not None:
            _print_value(file, args.key, args.json)
        elif args.json:
            print(json.dumps(inspect_report(file)))
        else:
            from localinfer.cli.inspect_table import print_report

            print_report(file)
    return 0


def inspect_report(file: ModelFile) -> dict[str, Any]:
    """The JSON form: every value, arrays in full. Offsets count from the start of the tensor's shard."""
    if isinstance(file, Checkpoint):
        sizes = [path.stat().st_size for path in file.paths]
        kind: dict[str, Any] = {"format": "mlx-lm"}
    else:
        sizes, kind = list(file.part_bytes), {"version": file.version, "alignment": file.alignment}
    return {
        **kind,
        "file_bytes": file.file_bytes,
        "tensor_bytes": file.tensor_bytes,
        "metadata": {key: json_value(value) for key, value in file.metadata.items()},
        "types": type_totals(file),
        "tensors": [
            {
                "name": info.name,
                "type": info.type.name,
                "shape": list(info.shape),
                "offset": info.offset,
                "bytes": info.n_bytes,
                "shard": info.part,
            }
            for info in file.tensors.values()
        ],
        "shards": [{"path": str(path), "bytes": n_bytes} for path, n_bytes in zip(file.paths, sizes, strict=True)],
    }


def type_totals(file: ModelFile) -> dict[str, dict[str, int]]:
    """Tensors, values and bytes of each type, the one with the most bytes first."""
    totals: dict[str, dict[str, int]] = {}
    for info in file.tensors.values():
        row = totals.setdefault(info.type.name, {"tensors": 0, "values": 0, "bytes": 0})
        row["tensors"] += 1
        row["values"] += info.n_values
        row["bytes"] += info.n_bytes
    return dict(sorted(totals.items(), key=lambda item: -item[1]["bytes"]))


def json_value(value: MetadataValue) -> Any:
    """As JSON can hold it: arrays become lists; infinity and NaN, which JSON lacks, become null."""
    if isinstance(value, array):
        return [json_value(x) for x in value] if value.typecode in "fd" else value.tolist()
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def _print_value(file: ModelFile, key: str, as_json: bool) -> None:
    if key not in file.metadata:
        close = difflib.get_close_matches(key, file.metadata, n=3)
        hint = f"there are: {', '.join(close)}" if close else "`localinfer inspect MODEL` lists all keys"
        raise UsageError(f"--key: {key!r} is not in the metadata", hint)
    value = file.metadata[key]
    if as_json:
        print(json.dumps(json_value(value)))
        return
    from localinfer.cli.terminal_text import printable

    items = value if isinstance(value, list | array) else [value]
    for item in items:
        print(printable(str(item)))
