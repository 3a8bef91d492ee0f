"""A row is one line of text on the screen: runs of text, each with the names of its styles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len, chop_cells

Styles = tuple[str, ...]
Run = tuple[str, Styles]
Row = list[Run]

# Between the characters of wide scripts a row may break, but no cluster is torn (flags, skin tones, joined emoji), no
# row begins with a closing mark and none ends with an opening one.
_WIDE = (
    r"\u1100-\u115f\u2e80-\u3000\u3003-\u3007\u3012-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f"
    r"\uff00\uff02-\uff07\uff0a\uff0b\uff0d-\uff19\uff1c-\uff1e\uff20-\uff3a\uff3e-\uff5a\uff5e"
    r"\uffe0-\uffe6\U0001f000-\U0001faff\U00020000-\U0003fffd"
)
_OPENING, _CLOSING = r"「『（［｛〈《【〔“‘", r"、。，．：；！？）］｝〉》」』】〕”’,.:;!?)"
_FLAG = r"[\U0001f1e6-\U0001f1ff]{2}"
_EXTENDED = r"(?:\u200d[^\s]|[\u0300-\u036f\u20e3\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f])*"
_CLUSTER = re.compile(rf"[{_OPENING}]*(?:{_FLAG}|[{_WIDE}]{_EXTENDED})[{_CLOSING}]*")
_PIECES = re.compile(rf"\n|[^\S\n]+|{_CLUSTER.pattern}|[^\s{_WIDE}]+")
_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)}
_CONTROLS |= {0x7F: "␡"} | {code: "�" for code in range(0x80, 0xA0)}
_CONTROLS |= {code: "�" for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)}
_CONTROLS |= {code: "�" for code in range(0xD800, 0xE000)}


def visible(text: str) -> str:
    """What a terminal would act on (escape sequences, bidi overrides) as symbols; line ends become newlines."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


def row_width(row: Row) -> int:
    """Cells that a row takes."""
    return sum(cell_len(text) for text, _ in row)


def row_text(row: Row) -> str:
    return "".join(text for text, _ in row)


def indented(rows: Iterable[Row], first: Run, rest: Run) -> Iterator[Row]:
    """Put `first` before the first row and `rest` before the others."""
    for index, row in enumerate(rows):
        yield [first if index == 0 else rest, *row]


def wrap(runs: Iterable[Run], width: int) -> list[Row]:
    """Break at spaces; a word longer than a row is cut. At least one row."""
    width = max(width, 1)
    rows: list[Row] = [[]]
    used = 0
    space: Run | None = None
    for word in _words(runs):
        text = word[0][0]
        if text == "\n":
            rows.append([])
            used, space = 0, None
        elif text.isspace():
            space = (" ", word[0][1]) if used else None
        else:
            n_cells = sum(cell_len(part) for part, _ in word)
            if used + (space is not None) + n_cells > width and used:
                rows.append([])
                used, space = 0, None
            if space is not None:
                rows[-1].append(space)
                used, space = used + 1, None
            used = _place(word, n_cells, width, rows, used)
    return [_merged(row) for row in rows]


def _place(word: Row, n_cells: int, width: int, rows: list[Row], used: int) -> int:
    """Put a word on the last row, over further rows where it is too long; cells then used on the last."""
    if n_cells <= width:
        rows[-1].extend(word)
        return used + n_cells
    for text, styles in word:
        while text:
            head = chop_cells(text, max(width - used, 1))[0] if width > used else ""
            if not head or (used and cell_len(head) > width - used):
                rows.append([])
                used = 0
                continue
            rows[-1].append((head, styles))
            used, text = used + cell_len(head), text[len(head) :]
    return used


def _words(runs: Iterable[Run]) -> Iterator[Row]:
    """Pieces that must not be broken, runs of white space and single newlines, in order."""
    word: Row = []
    for text, styles in runs:
        for piece in _PIECES.findall(text):
            breaks = piece.isspace() or (ord(piece[0]) >= 0x1100 and _CLUSTER.match(piece) is not None)
            if word and breaks:
                yield word
                word = []
            if breaks:
                yield [(piece, styles)]
            else:
                word.append((piece, styles))
    if word:
        yield word


def _merged(row: Row) -> Row:
    """Neighbours of one style become one run."""
    merged: Row = []
    for text, styles in row:
        if merged and merged[-1][1] == styles:
            merged[-1] = (merged[-1][0] + text, styles)
        else:
            merged.append((text, styles))
    return merged
