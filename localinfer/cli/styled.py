"""Styled text and columns on stdout: colours on a terminal, plain text elsewhere. Imports nothing that takes time.

A Span is text with a style, such as ("fits", "bold green"); what is plain may be a str. Lines are never cut or wrapped,
so that they can be piped and searched.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

Span = str | tuple[str, str]

# Select Graphic Rendition: ECMA-48, 8.3.117.
CODES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36",
}  # fmt: skip
GAP = "  "


def has_colors(stream: TextIO) -> bool:
    """A terminal that can, and a user who did not decline (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(spans: Iterable[Span], colors: bool) -> str:
    """The spans in a row, with escape sequences where `colors`."""
    out = []
    for span in spans:
        text, style = (span, "") if isinstance(span, str) else span
        codes = ";".join(CODES[name] for name in style.split())
        out.append(f"\x1b[{codes}m{text}\x1b[0m" if colors and codes and text else text)
    return "".join(out)


def print_line(*spans: Span) -> None:
    print(styled(spans, has_colors(sys.stdout)))


def print_columns(rows: Sequence[Sequence[Span]], align: str, indent: str = "") -> None:
    """Rows of equally many cells, each as wide as its column. `align` has < or > for each column."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    colors = has_colors(sys.stdout)
    for row, plain in zip(rows, texts, strict=True):
        last = max((i for i, text in enumerate(plain) if text), default=-1)  # nothing after it: no blanks at the end
        spans: list[Span] = []
        for i, (cell, text, side, width) in enumerate(zip(row, plain, align, widths, strict=True)):
            blanks = " " * (width - len(text))
            before, after = (blanks, "") if side == ">" else ("", blanks if i < last else "")
            spans += [before, cell, after + GAP if i < last else after] if i <= last else []
        print(indent + styled(spans, colors))


def _text(span: Span) -> str:
    return span if isinstance(span, str) else span[0]
