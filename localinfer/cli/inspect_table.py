"""How `inspect` looks in a terminal: aligned lines, never cut or wrapped, so that they can be piped and searched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from localinfer.cli.inspect import type_totals
from localinfer.cli.styled import Span, print_columns, print_line
from localinfer.cli.terminal_text import one_line
from localinfer.formats.checkpoint import Checkpoint
from localinfer.formats.gguf import Entry, GGUFFile
from localinfer.units import format_bytes

if TYPE_CHECKING:
    from localinfer.formats.model_file import ModelFile

SHOWN_CHARS = 72  # of a text
SHOWN_ELEMENTS = 4  # of an array


def print_report(file: ModelFile) -> None:
    """Everything to stdout."""
    print_block(_summary(file), [])
    print_block(f"metadata ({len(file.metadata)})", _metadata_rows(file), align="<<<")
    print_block("types", _type_rows(file), align="<>>>>")
    print_block(f"tensors ({len(file.tensors)})", _tensor_rows(file), align="<<<>>>")
    if len(file.paths) > 1:
        print_block(f"shards ({len(file.paths)})", _shard_rows(file), align=">>>")


def print_block(title: str, rows: Iterable[Sequence[str]], align: str = "") -> None:
    """A title and indented columns. `align` has < or > for each column."""
    print_line((title, "bold"))
    table: list[list[Span]] = [[(first, "cyan"), *rest] for first, *rest in rows]
    print_columns(table, align, indent="  ")


def _summary(file: ModelFile) -> str:
    n_values = sum(info.n_values for info in file.tensors.values())
    parts = [
        one_line(file.path.name),
        "mlx-lm's format" if isinstance(file, Checkpoint) else f"GGUF {file.version}",
        format_bytes(file.file_bytes),
        f"{n_values / 1e9:.3g} B parameters" if n_values >= 1e9 else f"{n_values / 1e6:.3g} M parameters",
    ]
    if not isinstance(file, Checkpoint):
        parts.append(f"alignment {file.alignment}")
    return "  ".join(parts)


def _metadata_rows(file: ModelFile) -> Iterable[Sequence[str]]:
    if isinstance(file, Checkpoint):
        yield from ((one_line(k), type(v).__name__, _cut(str(v))) for k, v in file.metadata.items())
        return
    for key in file.metadata:
        entry = file.metadata.entry(key)
        yield one_line(key), entry.type_name, _shown(file, entry)


def _shown(file: GGUFFile, entry: Entry) -> str:
    """A value on one line; of long ones the beginning."""
    if not entry.is_array:
        value = file.metadata[entry.key]
        return _cut(value if isinstance(value, str) else _number(value))
    first = file.metadata.first(entry.key, SHOWN_ELEMENTS)
    cells = [repr(x) if isinstance(x, str) else _number(x) for x in first]
    return _cut(", ".join(cells) + (", ..." if entry.count > len(cells) else ""))


def _number(value: object) -> str:
    """Floats with the digits that a float32 has: 1e-06, not 9.999999974752427e-07."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 3] + "..."


def _type_rows(file: ModelFile) -> Iterable[Sequence[str]]:
    for name, row in type_totals(file).items():
        share = row["bytes"] / file.tensor_bytes
        yield name, f"{row['tensors']} tensors", f"{row['values']:,} values", format_bytes(row["bytes"]), f"{share:.1%}"


def _tensor_rows(file: ModelFile) -> Iterable[Sequence[str]]:
    for info in file.tensors.values():
        place = f"{info.part}:{info.offset}" if len(file.paths) > 1 else str(info.offset)
        shape = " x ".join(map(str, info.shape))
        yield (
            one_line(info.name),
            info.type.name,
            shape,
            f"at {place}",
            f"{info.n_bytes} bytes",
            format_bytes(info.n_bytes),
        )


def _shard_rows(file: ModelFile) -> Iterable[Sequence[str]]:
    for i, path in enumerate(file.paths):
        yield str(i), one_line(path.name), format_bytes(path.stat().st_size)
