"""Where a model's thinking starts and ends, and an answer's text told apart from it while it streams.

Most templates show it when an assistant message with reasoning is rendered: what stands around the reasoning is what
the model was trained to write. `MARKER_STYLES` lists the styles known; a template whose tags are not among them is
read by probing (models/chat_template.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from localinfer.records import dataclass, replace

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
    "<|end|>",
    "<|start|>assistant<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>commentary<|message|>",
    "<|channel|>final<|message|>",
    "<|channel|>commentary<|message|>",
    "<|start|>assistant",
)

_MUSE_HIDDEN = ("<|eom|>", "<|start|>assistant", "<|start|>assistant to=user<|message|>", "to=user<|message|>")
_KIMI3_HIDDEN = ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>")

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
    ThinkingMarkers("to=self<|message|>", "<|eom|>", hidden=_MUSE_HIDDEN),
    ThinkingMarkers("<|open|>think<|sep|>", "<|close|>think<|sep|>", hidden=_KIMI3_HIDDEN),
    ThinkingMarkers("<think>", "</think>"),
    ThinkingMarkers("<thinking>", "</thinking>"),
    ThinkingMarkers("<thought>", "</thought>"),
)

# <think>, </think:x>, [THINK], or a composed one: <|open|>think<|sep|>
_TAG = r"(?:<\|[^<>|]{1,20}\|>\w+<\|[^<>|]{1,20}\|>|<[^<>\s]{1,40}>|\[/?[A-Z_]{2,20}\])"


def markers_in_source(source: str) -> ThinkingMarkers | None:
    """The known style whose tags stand in the template's text. Some templates only cut at the end tag of earlier
    answers: that tells the style too."""
    text = source.replace("\\n", "\n")
    for style in MARKER_STYLES:
        if style.start.rstrip() in text and style.end in text:
            return _with_response_tags(style, text)
    return next((style for style in MARKER_STYLES if style.end.startswith("</") and style.end in text), None)


def markers_around(rendered: str, reasoning: str, answer: str) -> ThinkingMarkers | None:
    """What stands around `reasoning` in a rendered conversation: a known style, or tags that look like a pair. Tags
    between the reasoning's end and `answer` are hidden from readers."""
    before, found, after = rendered.partition(reasoning)
    if not found:
        return None
    before, after = before.rstrip(), after.lstrip()
    for style in MARKER_STYLES:
        if before.endswith(style.start.rstrip()) and after.startswith(style.end):
            return style
    start, end = re.search(rf"({_TAG})\Z", before), re.match(_TAG, after)
    if not start or not end:
        return None
    between = after[end.end() :].partition(answer)[0].strip()
    hidden = (between,) if re.fullmatch(_TAG, between) else ()
    return ThinkingMarkers(start[1], end[0], hidden=hidden)


def opened_by(prompt: str, markers: ThinkingMarkers) -> bool:
    """Does `prompt` end with the start of the thinking, white space aside?"""
    return prompt.rstrip().endswith(markers.start.rstrip())


def _with_response_tags(style: ThinkingMarkers, source: str) -> ThinkingMarkers:
    """Granite's answers stand in <response> tags."""
    tags = ("<response>", "</response>")
    return replace(style, hidden=(*style.hidden, *tags)) if all(tag in source for tag in tags) else style


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
        """The rest, at the end of the answer. A whole marker that waited for more is still a marker."""
        pieces: list[tuple[Kind, str]] = []
        held, self._held = self._held, ""
        self._emit(pieces, "" if held in self._active() else held)
        return pieces

    def _active(self) -> tuple[str, ...]:
        """The markers that mean something now. Thinking starts only where nothing has been written yet: an answer may
        well speak of <think>. A model may write the start that its prompt has already written."""
        opening = (self._markers.start.rstrip(),) if self._at_edge else ()
        return (*opening, self._markers.end) if self._kind == "thinking" else (*opening, *self._markers.hidden)

    def _ends_kind(self, marker: str) -> bool:
        return marker == self._markers.end or marker == self._markers.start.rstrip()

    def _next_marker(self) -> tuple[int, str] | None:
        """Place and text of the first marker that stands whole; of those at one place the longest."""
        start = self._markers.start.rstrip()
        found = [(at, -len(m), m) for m in self._active() if (at := self._held.find(m)) >= 0]
        found = [entry for entry in found if entry[2] != start or not self._held[: entry[0]].strip()]
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
        active = self._active()
        if not active:
            return 0
        held = self._held
        for n in range(min(len(held), max(map(len, active))), 0, -1):
            if any(m.startswith(held[-n:]) for m in active):
                return n + len(held[:-n]) - len(held[:-n].rstrip())
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
