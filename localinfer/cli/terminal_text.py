"""Text from a model or a file, for a terminal: control characters are shown, never executed."""

from __future__ import annotations

_VISIBLE = {i: chr(0x2400 + i) for i in range(32) if chr(i) not in "\n\t"}
_VISIBLE |= {0x7F: "\u2421"} | {i: "\ufffd" for i in range(0x80, 0xA0)}
_VISIBLE |= {i: "\ufffd" for i in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}  # reverse what is read


def printable(text: str) -> str:
    """ESC becomes a picture of itself, and so do its like; new lines and tabs stay."""
    return text.translate(_VISIBLE)


def one_line(text: str) -> str:
    """`printable`, and new lines and tabs are shown too."""
    return printable(text).replace("\n", "\u23ce").replace("\t", " ")
