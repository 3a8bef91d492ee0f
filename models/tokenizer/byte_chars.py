"""The byte <-> character table of byte-level BPE: every byte has one printable character in the vocabulary.

Printable Latin-1 bytes stand for themselves; the other 68 (controls, space, 0x7F-0xA0, 0xAD) follow from
U+0100 on, in order. From GPT-2's encoder: https://github.com/openai/gpt-2/blob/9b63575ef42771a015060c964af2c3da4cf7c8ab/src/encoder.py
"""

from __future__ import annotations

from collections.abc import Sequence


def _table() -> list[str]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    extra = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(extra)) for b in range(256)]


BYTE_TO_CHAR: list[str] = _table()
CHAR_TO_BYTE: dict[str, int] = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}
# str.translate on a latin-1 view of the bytes is the fastest way to map them in pure Python.
_TRANSLATION = {byte: char for byte, char in enumerate(BYTE_TO_CHAR)}


def byte_chars(text: str) -> str:
    """UTF-8 bytes of `text` as vocabulary characters: ' é' -> 'ĠÃ©'."""
    return text.encode("utf-8").decode("latin-1").translate(_TRANSLATION)


def byte_chars_of(texts: Sequence[str]) -> list[str]:
    """Of each text, in one pass: NUL has a character of its own, so it can stand between them."""
    spelled = byte_chars("\0".join(texts)).split(BYTE_TO_CHAR[0])
    return spelled if len(spelled) == len(texts) else list(map(byte_chars, texts))


def chars_to_bytes(token: str) -> bytes | None:
    """Back again; None where a character of `token` stands for no byte (the token was not byte-encoded)."""
    try:
        return bytes([CHAR_TO_BYTE[char] for char in token])
    except KeyError:
        return None
