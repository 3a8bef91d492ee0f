"""Tokens of an answer -> pieces of text to show: whole characters, nothing of a stop string, thinking told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from localinfer.engine.events import TextDelta, TextKind
from localinfer.engine.stop_strings import StopScanner


class TokenStream(Protocol):
    """Token bytes -> whole characters (models/tokenizer)."""

    def push(self, token: int) -> str: ...
    def flush(self) -> str: ...


class Splitter(Protocol):
    """Text -> (kind, text) pieces (models/chat_template)."""

    def push(self, text: str) -> Iterable[tuple[TextKind, str]]: ...
    def flush(self) -> Iterable[tuple[TextKind, str]]: ...


class PlainSplitter:
    """A model that does not think aloud."""

    def push(self, text: str) -> list[tuple[TextKind, str]]:
        return [("answer", text)] if text else []

    def flush(self) -> list[tuple[TextKind, str]]:
        return []


class AnswerText:
    """`text`: the answer so far, thinking excluded. `stopped`: a stop string was found."""

    def __init__(self, turn_id: int, stream: TokenStream, stops: Sequence[str], splitter: Splitter) -> None:
        self._turn_id = turn_id
        self._stream = stream
        self._scanner = StopScanner(stops)
        self._splitter = splitter
        self._parts: list[str] = []
        self._untold: list[int] = []  # tokens whose text is held back

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def stopped(self) -> bool:
        return self._scanner.stopped

    def push(self, token: int) -> list[TextDelta]:
        self._untold.append(token)
        return self._deltas(self._splitter.push(self._scanner.push(self._stream.push(token))))

    def finish(self) -> list[TextDelta]:
        """The rest, once no further token comes."""
        text = "" if self.stopped else self._scanner.push(self._stream.flush()) + self._scanner.flush()
        return self._deltas([*self._splitter.push(text), *self._splitter.flush()])

    def _deltas(self, pieces: Iterable[tuple[TextKind, str]]) -> list[TextDelta]:
        deltas = []
        for kind, text in pieces:
            if not text:
                continue
            if kind == "answer":
                self._parts.append(text)
            deltas.append(TextDelta(self._turn_id, text, tuple(self._untold), kind))
            self._untold.clear()
        return deltas
