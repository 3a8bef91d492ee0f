"""The header of a GGUF of which only the first bytes are here: read it, or say how many bytes more it takes."""

from __future__ import annotations

from localinfer.formats.gguf_header import Header, HeaderReader, not_a_gguf_unless
from localinfer.formats.gguf_values import Entry, ValueType

GROWTH = 8  # an estimate may ask for so many times what is here, not more


class MoreNeeded(Exception):
    """The header reaches at least to `end`, an estimate inside a list of text. `array`: the one that is cut short."""

    def __init__(self, end: int, array: CutArray | None = None) -> None:
        super().__init__(end)
        self.end = end
        self.array = array


class CutArray:
    """A metadata array that starts here and ends beyond what is here."""

    def __init__(self, kind: tuple[str, bytes], start: int) -> None:
        self.kind = kind  # its key, and the bytes of its type and length: equal for equal vocabularies
        self.start = start


def read_prefix(data: bytes, size: int, path: str, part: int = 0) -> Header:
    """The header of a file of `size` bytes that starts with `data`. MoreNeeded; FormatError as for a whole file."""
    not_a_gguf_unless(data, path)
    return _PrefixReader(data, size, path).read(part)


def array_bytes(data: bytes, entry: Entry, following: Entry) -> tuple[tuple[str, bytes], bytes]:
    """What CutArray calls `kind`, and the elements, of an array of a complete header; `following` comes next in it."""
    fixed = 24 if following.is_array else 20 if following.type is ValueType.STRING else 12
    end = following.offset - fixed - len(following.key.encode())
    return (entry.key, data[entry.offset - 12 : entry.offset]), data[entry.offset : end]


class _PrefixReader(HeaderReader):
    """Checks against the length of the whole file, and stops where the bytes end."""

    def __init__(self, data: bytes, size: int, path: str) -> None:
        super().__init__(data, path, size)
        self.names = 0  # short strings read so far

    def skip(self, n: int, field: str, part: str = "") -> int:
        start = super().skip(n, field, part)
        if self.pos > len(self.data):
            raise MoreNeeded(self.pos)
        return start

    def array(self, key: str, field: str) -> Entry:
        at = self.pos
        try:
            return super().array(key, field)
        except MoreNeeded as need:
            if at + 12 <= len(self.data):
                need.array = CutArray((key, bytes(self.data[at : at + 12])), at + 12)
            raise

    def short_string(self, field: str, maximum: int) -> str:
        self.names += 1
        return super().short_string(field, maximum)

    def tensor_table(self, n: int) -> list[tuple[str, tuple[int, ...], int, int, int]]:
        start, self.names = self.pos, 0
        try:
            return super().tensor_table(n)
        except MoreNeeded as need:
            if self.names > 1:  # the last of them is cut short
                need.end = max(need.end, self.estimate(start, self.pos, self.names, n))
            raise

    def estimate(self, start: int, pos: int, seen: int, count: int) -> int:
        """Where `count` things end that begin at `start`, if all are as long as the `seen` ones up to `pos`."""
        return min(start + (pos - start) * count // max(1, seen), GROWTH * len(self.data), self.size)

    def strings_end_beyond(self, start: int, pos: int, seen: int, count: int, field: str) -> None:
        """Of `count` strings `seen` are here, up to `pos`: the rest is taken to be as long on average."""
        raise MoreNeeded(max(pos + 8, self.estimate(start, pos, seen, count)))
