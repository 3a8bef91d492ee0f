"""Wrapping and the replacement of what a terminal would act on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from localinfer.tui.markdown.rows import row_text, row_width, visible, wrap


def lines(text: str, width: int) -> list[str]:
    return [row_text(row) for row in wrap([(text, ())], width)]


def test_wraps_at_spaces_and_keeps_line_ends():
    assert lines("one two three\nfour", 8) == ["one two", "three", "four"]


def test_cuts_a_word_that_is_longer_than_a_row():
    assert lines("ab abcdefghij", 4) == ["ab", "abcd", "efgh", "ij"]


def test_wide_characters_count_two_cells_and_may_break_anywhere():
    assert lines("日本語日本語", 5) == ["日本", "語日", "本語"]


def test_a_word_of_several_styles_is_not_broken_between_them():
    rows = wrap([("aaa ", ()), ("bo", ("strong",)), ("ld", ())], 5)
    assert [row_text(row) for row in rows] == ["aaa", "bold"]
    assert rows[1] == [("bo", ("strong",)), ("ld", ())]


def test_what_belongs_together_is_not_torn():
    family, flags = "👨\u200d👩\u200d👧\u200d👦", "🇩🇪🇫🇷"
    assert lines(family * 3, 3) == [family] * 3
    assert lines(flags + "👍🏽", 3) == ["🇩🇪", "🇫🇷", "👍🏽"]
    assert lines("we don’t", 7) == ["we", "don’t"]
    assert lines("中文，测试。", 4) == ["中", "文，", "测", "试。"]
    assert lines("「引用」です", 6) == ["「引", "用」で", "す"]


def test_an_empty_text_is_one_row():
    assert wrap([], 10) == [[]]


@given(st.text(alphabet="ab \n日é", max_size=60), st.integers(2, 12))
@settings(max_examples=200, deadline=None)
def test_no_row_is_wider_and_no_letter_is_lost(text: str, width: int):
    rows = wrap([(text, ())], width)
    assert all(row_width(row) <= width for row in rows)
    assert "".join("".join(row_text(row).split()) for row in rows) == "".join(text.split())


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("\x1b[31mred", "␛[31mred"),
        ("bell\x07", "bell␇"),
        ("\x9b2J", "�2J"),
        ("a\u202eb", "a�b"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("\ud800", "�"),
        ("👩\u200d🔬 é ok\t", "👩\u200d🔬 é ok\t"),
    ],
)
def test_control_characters_are_shown(raw: str, safe: str):
    assert visible(raw) == safe


def test_visible_symbols_take_one_cell():
    assert all(cell_len(visible(chr(code))) == 1 for code in range(0x20) if code not in (9, 10, 13))
