"""What is drawn while text streams: only the rows that changed, and yet the whole picture."""

from __future__ import annotations

import pytest
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.strip import Strip

from tests.fakes.scripted_service import Answer, long_markdown
from tests.tui.conftest import ask, finished, ready, until


class Painted:
    """The screen as a terminal has it after the updates that were written: rows of (text, style) cells."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[int, tuple[str, object]]] = {}
        self.n_rows_drawn = 0

    def show(self, screen, update) -> None:
        match update:
            case LayoutUpdate():
                for y, strips in enumerate(update.strips):
                    self._paint(y, 0, Strip.join(strips), 0, 1000)
            case ChopsUpdate():
                for y, x1, x2 in update.spans:
                    self.n_rows_drawn += 1
                    for x, strip in update.chops[y].items():
                        if strip is not None:
                            self._paint(y, x, strip, x1, x2)

    def _paint(self, y: int, x: int, strip: Strip, x1: int, x2: int) -> None:
        row = self.rows.setdefault(y, {})
        for segment in strip:
            look = segment.style and segment.style.without_color, segment.style and segment.style.color
            for character in segment.text:
                if x1 <= x < x2:
                    row[x] = (character, look)
                x += 1

    def text(self) -> list[str]:
        return ["".join(row[x][0] for x in sorted(row)) for _, row in sorted(self.rows.items())]


@pytest.fixture
def painted(monkeypatch) -> Painted:
    screen = Painted()
    monkeypatch.setattr("textual.app.App._display", lambda app, *update: screen.show(*update))
    return screen


@pytest.mark.parametrize(
    "answer", [Answer(long_markdown(600), tok_s=1500), Answer("one word after another " * 200, tok_s=900)]
)
async def test_parts_that_are_drawn_make_the_whole_picture(make_app, painted, answer):
    app = make_app(answer)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app)
        await ask(pilot, "go", wait=False)
        await until(lambda: app.chat.transcript.virtual_size.height > 30)
        app.chat.transcript.scroll_to(y=5, animate=False)
        await pilot.pause(0.1)
        app.chat.transcript.action_follow()
        await finished(app)
        await pilot.pause()
        in_parts = {y: dict(row) for y, row in painted.rows.items()}
        app.refresh(layout=True)
        await pilot.pause()
        changed = {(y, x) for y, row in painted.rows.items() for x, cell in row.items() if in_parts[y].get(x) != cell}
        bar = app.chat.transcript.vertical_scrollbar.region.x
        assert {x for _, x in changed} <= {bar}
        assert len(changed) <= 1  # the thumb's end is drawn again when it has moved by a cell


async def test_a_word_more_draws_its_row_alone(make_app, painted):
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app)
        await ask(pilot, "go")
        view = app.chat.transcript.views[-1]
        painted.n_rows_drawn = 0
        app.chat.transcript.feed(view, " and more", "")
        await pilot.pause()
        assert 1 <= painted.n_rows_drawn <= 2
        assert any("Paris. and more" in row for row in painted.text())


async def test_the_way_to_the_first_message_of_a_long_conversation_is_gone_in_steps(make_app, store):
    conversation, parent = store.new(), 0
    for n in range(120):
        parent = conversation.add(parent, "user", f"question {n}").id
        parent = conversation.add(parent, "assistant", "an answer of some length\n\n" * 40, state="eos").id
    conversation.close()
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app)
        app.chat.open_conversation(conversation.id)
        transcript = app.chat.transcript
        await until(lambda: transcript.views)
        await pilot.pause()
        transcript.action_top()
        n_laid_out = len(transcript._stack.laid_out)
        assert 0 < n_laid_out < 240, "all at once"
        await until(lambda: transcript._stack.is_whole and transcript.scroll_offset.y == 0)
        assert not transcript.following
        transcript.action_follow()
        await until(lambda: transcript.following)
