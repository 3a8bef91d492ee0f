"""Where a model's thinking starts and ends, and an answer's text told apart from it while it streams.

Most templates show it when an assistant message with reasoning is rendered: what stands around the reasoning is what
the model was trained to write. `MARKER_STYLES` lists the styles known; a template whose tags are not among them is
read by probing (models/chat_template.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["answer", "thinking"]


@dataclass(frozen=True)
class ThinkingMarkers:
    """`start` and `end` as the model writes them. `opened_by_prompt`: the prompt ends inside the thinking, so the
    model writes only the end. `hidden`: frames around answers (channel headers) that are no text for a reader."""

    start: str
    end: str
    opened_by_prompt: bool = False
    hidden: tuple[str, ...] = ()


_HARMONY_HIDDEN = (
    "<|start|>assistant<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>commentary<|message|>",
    "<|channel|>final<|message|>",
    "<|channel|>commentary<|message|>",
    "<|start|>assistant",
)

# Longer ones first: the first whose start and end both stand in a template is its style.
MARKER_STYLES: tuple[ThinkingMarkers, ...] = (
    ThinkingMarkers("<|channel|>analysis<|message|>", "<|end|>", hidden=_HARMONY_HIDDEN),
    ThinkingMarkers("<|channel>thought\n", "<channel|>"),
    ThinkingMarkers("<|START_THINKING|>", "<|END_THINKING|>", hidden=("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    ThinkingMarkers("<seed:think>", "</seed:think>"),
    ThinkingMarkers("<mm:think>", "</mm:think>"),
    ThinkingMarkers("[THINK]", "[/THINK]"),
    ThinkingMarkers("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]", hidden=("<|end|>",)),
    ThinkingMarkers("<|inner_prefix|>", "<|inner_suffix|>"),
    ThinkingMarkers(
        "<|think|>", "<|end|>", hidden=("<|begin|>assistant<|content|>", "<|begin|>assistant", "<|content|>")
    ),
    ThinkingMarkers("<think>", "</think>"),
    ThinkingMarkers("<thinking>", "</thinking>"),
    ThinkingMarkers("<thought>", "</thought>"),
)

_TAG = r"(?:<[^<>\s]{1,40}>|\[/?[A-Z_]{2,20}\])"


def markers_in_source(source: str) -> ThinkingMarkers | None:
    """The known style whose start and end both stand in the template's text (escapes like \\n read)."""
    text = source.replace("\\n", "\n")
    for style in MARKER_STYLES:
        if _stem(style.start) in text and _stem(style.end) in text:
            return style
    return None


def markers_around(rendered: str, reasoning: str) -> ThinkingMarkers | None:
    """What stands around `reasoning` in a rendered conversation: a known style, or tags that look like a pair."""
    before, found, after = rendered.partition(reasoning)
    if not found:
        return None
    before, after = before.rstrip(), after.lstrip()
    for style in MARKER_STYLES:
        if before.endswith(style.start.rstrip()) and after.startswith(style.end):
            return style
    start = re.search(rf"({_TAG}|<\|[^<>]{{1,20}}\|>\w+(?:<\|[^<>]{{1,20}}\|>)+)\Z", before)
    end = re.match(rf"(<\|[^<>]{{1,20}}\|>\w+(?:<\|[^<>]{{1,20}}\|>)+|{_TAG})", after)
    return ThinkingMarkers(start[1], end[1]) if start and end else None


def opened_by(prompt: str, markers: ThinkingMarkers) -> bool:
    """Does `prompt` end with the start of the thinking, white space aside?"""
    return prompt.rstrip().endswith(markers.start.rstrip())


def _stem(marker: str) -> str:
    """The first tag of a marker: templates write `<|channel|>analysis<|message|>` in one piece or several."""
    return marker.rstrip()


class ThinkingSplitter:
    """Streamed text -> [(kind, text)]. Markers may be split over pushes; they belong to neither kind, nor does white
    space beside them. Text that may yet become a marker waits until it is one or is not."""

    def __init__(self, markers: ThinkingMarkers) -> None:
        self._markers = markers
        self._kind: Kind = "thinking" if markers.opened_by_prompt else "answer"
        self._held = ""
        self._at_edge = True  # right after a marker, or at the very start: white space is dropped

    def push(self, text: str) -> list[tuple[Kind, str]]:
        """What `text` settles, in order; pieces are never empty."""
        self._held += text
        pieces: list[tuple[Kind, str]] = []
        while found := self._next_marker():
            at, marker = found
            self._emit(pieces, self._held[:at].rstrip() if self._ends_kind(marker) else self._held[:at])
            self._held = self._held[at + len(marker) :]
            self._pass(marker)
        keep = self._length_to_hold()
        self._emit(pieces, self._held[: len(self._held) - keep])
        self._held = self._held[len(self._held) - keep :]
        return pieces

    def flush(self) -> list[tuple[Kind, str]]:
        """The rest, at the end of the answer."""
        pieces: list[tuple[Kind, str]] = []
        held, self._held = self._held, ""
        self._emit(pieces, held)
        return pieces

    def _active(self) -> tuple[str, ...]:
        """The markers that mean something now. A model may open the thinking that the prompt has already opened."""
        start = self._markers.start.rstrip()
        if self._kind == "thinking":
            return (self._markers.end, start) if self._at_edge else (self._markers.end,)
        return (start, *self._markers.hidden)

    def _ends_kind(self, marker: str) -> bool:
        return marker == self._markers.end or marker == self._markers.start.rstrip()

    def _next_marker(self) -> tuple[int, str] | None:
        """Place and text of the first marker that stands whole; of those at one place the longest."""
        found = [(at, -len(m), m) for m in self._active() if (at := self._held.find(m)) >= 0]
        if not found:
            return None
        at, _, marker = min(found)
        # `<|start|>assistant` may go on as `<|start|>assistant<|channel|>final<|message|>`: wait for what follows.
        rest = self._held[at:]
        if any(len(m) > len(rest) and m.startswith(rest) for m in self._active()):
            return None
        return at, marker

    def _pass(self, marker: str) -> None:
        if marker == self._markers.start.rstrip():
            self._kind = "thinking"
        elif marker == self._markers.end:
            self._kind = "answer"
        self._at_edge = True

    def _length_to_hold(self) -> int:
        """How many characters at the end may belong to a marker, or be white space before one."""
        held = self._held
        for n in range(min(len(held), max(map(len, self._active()))), 0, -1):
            tail = held[len(held) - n :]
            if any(m.startswith(tail) for m in self._active()):
                return n + len(held[: len(held) - n]) - len(held[: len(held) - n].rstrip())
        return len(held) - len(held.rstrip())

    def _emit(self, pieces: list[tuple[Kind, str]], text: str) -> None:
        if self._at_edge:
            text = text.lstrip()
        if text:
            self._at_edge = False
            pieces.append((self._kind, text))


def split_text(text: str, markers: ThinkingMarkers) -> Iterable[tuple[Kind, str]]:
    """A whole answer, split."""
    splitter = ThinkingSplitter(markers)
    return [*splitter.push(text), *splitter.flush()]
