from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localinfer.engine.stop_strings import StopScanner


def run(stops, pieces):
    scanner = StopScanner(stops)
    shown = []
    for piece in pieces:
        shown.append(scanner.push(piece))
        if scanner.stopped:
            return shown, True
    return [*shown, scanner.flush()], False


@pytest.mark.parametrize(
    ("stops", "pieces", "shown"),
    [
        (["END"], ["a", "E", "N", "x"], ["a", "", "", "ENx", ""]),
        (["END"], ["aEN", "Db"], ["a", ""]),
        (["END"], ["E", "EN", "D"], ["", "E", ""]),
        (["aab"], ["aaab"], ["a"]),
        (["\n\n", "."], ["one\n", "two. three"], ["one", "\ntwo"]),
        (["long stop", "lo"], ["hello"], ["hel"]),
        ([], ["any", "thing"], ["any", "thing", ""]),
        (["x"], ["", "y"], ["", "y", ""]),
    ],
)
def test_examples(stops, pieces, shown):
    assert run(stops, pieces)[0] == shown


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc", max_size=3), max_size=12),
)
def test_shows_the_text_before_the_first_stop_string_and_no_later_than_possible(stops, pieces):
    shown, stopped = run(stops, pieces)
    whole = "".join(pieces)
    cuts = [whole.find(s) for s in stops if s in whole]
    assert stopped == bool(cuts)
    if not stopped:
        assert "".join(shown) == whole
    text = ""
    for i, piece in enumerate(shown[: len(pieces)]):
        text += piece
        sofar = "".join(pieces[: i + 1])
        if not any(s in sofar for s in stops):
            held = sofar[len(text) :]  # held back only while it may become a stop string
            assert text + held == sofar and (not held or any(s.startswith(held) for s in stops))
            assert not any(s.startswith(sofar[k:]) for s in stops for k in range(len(text)))
