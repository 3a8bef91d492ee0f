from __future__ import annotations

import pytest

from localinfer.models.thinking import (
    MARKER_STYLES,
    ThinkingMarkers,
    ThinkingSplitter,
    markers_around,
    markers_in_source,
    opened_by,
    split_text,
)

THINK = ThinkingMarkers("<think>", "</think>")
OPENED = ThinkingMarkers("<think>", "</think>", opened_by_prompt=True)
HARMONY = MARKER_STYLES[0]


def joined(pieces) -> list[tuple[str, str]]:
    """Neighbouring pieces of one kind as one."""
    out: list[tuple[str, str]] = []
    for kind, text in pieces:
        if out and out[-1][0] == kind:
            out[-1] = (kind, out[-1][1] + text)
        else:
            out.append((kind, text))
    return out


CASES = [
    (THINK, "<think>\nhm\n</think>\n\nYes.", [("thinking", "hm"), ("answer", "Yes.")]),
    (THINK, "Yes.", [("answer", "Yes.")]),
    (THINK, "Use the <think> tag", [("answer", "Use the <think> tag")]),
    (THINK, "<think></think>Yes", [("answer", "Yes")]),
    (THINK, "<think>never ends", [("thinking", "never ends")]),
    (THINK, "a < b </th", [("answer", "a < b </th")]),
    (OPENED, "hm\n</think>Yes", [("thinking", "hm"), ("answer", "Yes")]),
    (OPENED, "<think>hm</think> Yes", [("thinking", "hm"), ("answer", "Yes")]),
    (OPENED, "of <think> I know</think>Yes", [("thinking", "of <think> I know"), ("answer", "Yes")]),
    (HARMONY, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes <|x",
     [("thinking", "hm"), ("answer", "Yes <|x")]),
    (HARMONY, "<|channel|>final<|message|>Yes", [("answer", "Yes")]),
    (HARMONY, "<|channel|>commentary<|message|>Wait<|end|><|start|>assistant<|channel|>analysis<|message|>hm<|end|>"
     "<|start|>assistant<|channel|>final<|message|>Yes", [("answer", "Wait"), ("thinking", "hm"), ("answer", "Yes")]),
    (ThinkingMarkers("<think>", "</think>", hidden=("<response>", "</response>")),
     "<think>hm</think><response>Yes</response>", [("thinking", "hm"), ("answer", "Yes")]),
]  # fmt: skip


@pytest.mark.parametrize(("markers", "text", "expected"), CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_text_is_told_apart_however_it_is_cut(markers, text, expected, size):
    splitter = ThinkingSplitter(markers)
    pieces = [piece for i in range(0, len(text), size) for piece in splitter.push(text[i : i + size])]
    assert all(part for _, part in pieces)
    assert joined([*pieces, *splitter.flush()]) == expected


def test_text_that_can_be_no_marker_is_given_at_once():
    splitter = ThinkingSplitter(THINK)
    assert splitter.push("Hello") == [("answer", "Hello")]
    assert splitter.push(" wor") == [("answer", " wor")]
    assert joined(split_text("a  b", THINK)) == [("answer", "a  b")]


def test_white_space_inside_an_answer_stays():
    splitter = ThinkingSplitter(THINK)
    pieces = [*splitter.push("a\n"), *splitter.push("\nb \n"), *splitter.flush()]
    assert joined(pieces) == [("answer", "a\n\nb \n")]


@pytest.mark.parametrize("style", MARKER_STYLES, ids=lambda style: style.start.strip())
def test_known_styles_are_found_in_a_rendered_answer_and_in_a_source(style):
    rendered = f"[user]Hi[assistant]{style.start}Thought{style.end}Answer"
    assert markers_around(rendered, "Thought", "Answer") == style
    found = markers_in_source(f"{{{{ '{style.start}' }}}} ... '{style.end}'")
    assert found and (found.start, found.end) == (style.start, style.end)
    assert opened_by(f"[assistant]{style.start}", style)
    assert not opened_by(f"[assistant]{style.start}{style.end}", style)


def test_unknown_tags_that_make_a_pair_are_found():
    assert markers_around("x<w:q>\nT\n</w:q>\n<out>A", "T", "A") == ThinkingMarkers(
        "<w:q>", "</w:q>", hidden=("<out>",)
    )
    assert markers_around("no tags: T A", "T", "A") is None
    assert markers_around("nothing", "T", "A") is None
    assert markers_in_source("{{ content }}") is None
