"""Token ids to text, one at a time, never half a character.

Bytes that may be the start of a character wait; bytes that cannot be one become U+FFFD, as bytes.decode has it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from localinfer.records import dataclass

TokenBytes = Callable[[int], bytes]
_UTF8 = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True)
class StreamState:
    """All that the next push depends on: the bytes of an unfinished character, and whether a leading space drops."""

    pending: bytes
    drop_space: bool


class StreamDecoder:
    """`push` ids, get text; `state` and `restore` go back when drafted tokens are refused."""

    def __init__(
        self, token_bytes: TokenBytes, hidden: frozenset[int], drops_space_after: frozenset[int], drop_space: bool
    ) -> None:
        self._token_bytes = token_bytes
        self._hidden = hidden
        self._drops_space_after = drops_space_after
        self._drop_space = drop_space
        self._decoder = _UTF8(errors="replace")

    def push(self, token: int) -> str:
        """The characters that `token` completes; "" while one is unfinished. IndexError for an id out of range."""
        data = b"" if token in self._hidden else self._token_bytes(token)
        if self._drop_space and data:
            data = data.removeprefix(b" ")
            self._drop_space = False
        if token in self._drops_space_after:
            self._drop_space = True
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left at the end: U+FFFD where a character was never finished."""
        return self._decoder.decode(b"", final=True)

    def state(self) -> StreamState:
        """A value to give to `restore` later."""
        return StreamState(self._decoder.getstate()[0], self._drop_space)

    def restore(self, state: StreamState) -> None:
        """Be as one was when `state` was taken."""
        self._decoder.setstate((state.pending, 0))
        self._drop_space = state.drop_space
