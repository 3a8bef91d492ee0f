"""Markdown to rows, whole and as it streams."""

from __future__ import annotations

import time
from statistics import median

import pytest

from localinfer.tui.markdown.document import MarkdownDocument
from localinfer.tui.markdown.rows import row_text, row_width
from tests.fakes.scripted_service import long_markdown


def rendered(source: str, width: int = 40) -> list[str]:
    document = MarkdownDocument(width)
    document.set_source(source)
    return [row_text(row).rstrip() for row in document.rows]


def streamed(source: str, width: int = 40, step: int = 3) -> MarkdownDocument:
    document = MarkdownDocument(width)
    for start in range(0, len(source), step):
        document.feed(source[start : start + step])
    return document


def styles_of(source: str, text: str) -> tuple[str, ...]:
    document = MarkdownDocument(60)
    document.set_source(source)
    return next(styles for row in document.rows for part, styles in row if text in part)


def test_paragraphs_headings_and_rules_are_parted_by_one_empty_row():
    assert rendered("# Head\ntext\nmore\n\n---\nend") == ["Head", "", "text more", "", "─" * 40, "", "end"]


def test_nested_lists_and_numbers():
    source = "9. nine\n10. ten\n    - in\n      - deep\n\n11. far"
    assert rendered(source) == [" 9. nine", "10. ten", "    ◦ in", "      ▪ deep", "", "11. far"]


def test_a_table_is_aligned():
    assert rendered("|a|b|\n|-|-:|\n|x|1|\n|long|22|") == ["a      b", "────────", "x      1", "long  22"]


def test_a_table_without_room_becomes_fields():
    source = "|first|second|third|fourth|\n|-|-|-|-|\n|alpha beta|gamma|delta|epsilon|"
    rows = rendered(source, 20)
    assert "first: alpha beta" in rows and "fourth: epsilon" in rows


@pytest.mark.parametrize("width", [10, 20, 36, 80])
def test_nothing_is_wider_than_the_screen(width: int):
    document = MarkdownDocument(width)
    document.set_source(long_markdown(300))
    assert max(row_width(row) for row in document.rows) <= width


def test_code_keeps_its_spaces_and_knows_its_language():
    rows = rendered("```python\ndef f():\n    return 'x'\n```")
    assert rows == [" python", " def f():", "     return 'x'"]
    assert "code-keyword" in styles_of("```python\nreturn 1\n```", "return")
    assert styles_of("```nosuchlanguage\nreturn 1\n```", "return") == ("code",)


def test_inline_styles_and_link_targets():
    assert styles_of("a *b* c", "b") == ("em",)
    assert styles_of("a **b** c", "b") == ("strong",)
    assert styles_of("`b`", "b") == ("code-inline",)
    assert rendered("[text](http://x.y)") == ["text (http://x.y)"]


def test_markup_and_html_stay_text():
    assert rendered("[bold]x[/bold] <b>y</b> &amp;") == ["[bold]x[/bold] <b>y</b> &"]


@pytest.mark.parametrize("step", [1, 3, 7, 50])
@pytest.mark.parametrize(
    "source",
    [
        long_markdown(500),
        "1. a\n2. b\n\n3. c\n\n   more c\n4. d\n\nend",
        "> quote\n> more\n\nSetext\n======\n\nafter",
        "```\n" + "line\n" * 300 + "```\nafter",
        "[ref] text\n\n[ref]: http://x.y\n",
        "- a\n- b\n\n\npara\n\n    code\n",
    ],
    ids=["mixed", "list", "quote", "long-code", "reference", "indented"],
)
def test_streaming_ends_where_the_whole_does(source: str, step: int):
    document = streamed(source, step=step)
    document.finish()
    assert [row_text(row).rstrip() for row in document.rows] == rendered(source)
    assert document.source == source


def test_a_resize_while_streaming_gives_the_rows_of_that_width():
    source = long_markdown(300)
    document = streamed(source, width=60)
    document.resize(30)
    assert [row_text(row).rstrip() for row in document.rows] == rendered(source, 30)


def test_a_piece_costs_the_same_late_as_early():
    source = long_markdown(6000)
    document = MarkdownDocument(80)
    costs = []
    for start in range(0, len(source), 40):
        began = time.process_time()
        document.feed(source[start : start + 40])
        costs.append(time.process_time() - began)
    quarter = len(costs) // 4
    assert median(costs[-quarter:]) < 4 * median(costs[10 : 10 + quarter])


@pytest.mark.parametrize("opening", ["```python\n", "", "- item\n"])
def test_a_long_block_does_not_slow_down_its_own_end(opening: str):
    line = (
        "- item with some text\n"
        if opening.startswith("-")
        else "x = call(1)  # note\n"
        if opening
        else "text here\n\n"
    )
    document = MarkdownDocument(80)
    document.feed(opening)
    costs = []
    for _ in range(1200):
        began = time.process_time()
        document.feed(line)
        costs.append(time.process_time() - began)
    assert median(costs[-300:]) < 4 * median(costs[300:600])
