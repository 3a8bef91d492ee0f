"""One message as rows: what is folded, and what unfolding shows."""

from __future__ import annotations

import pytest

from localinfer.tui.markdown.rows import row_text
from localinfer.tui.widgets.message_view import MessageView


def rows(view: MessageView) -> list[str]:
    view.render(60)
    return [row_text(view.row(i)).rstrip() for i in range(view.n_rows)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n".join(f"line {i}" for i in range(3200)), "▸ 3,190 more lines, t unfolds"),
        ("word " * 2000, "▸ 9,000 more characters, t unfolds"),
    ],
)
def test_a_pasted_file_is_folded_and_comes_whole_when_unfolded(text, said):
    view = MessageView(1, "user", "You", text)
    folded = rows(view)
    assert said in folded and len(folded) < 30
    view.unfolded = True
    assert said not in rows(view) and view.n_rows > 150 and view.text == text


def test_what_a_person_types_is_not_folded():
    view = MessageView(1, "user", "You", "\n".join(f"line {i}" for i in range(20)))
    assert "line 19" in rows(view)
