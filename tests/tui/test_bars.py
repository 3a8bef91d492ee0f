"""The lines around the composer: what they keep where there is little room, and what they draw."""

from __future__ import annotations

import pytest

from localinfer.tui.widgets.status_bar import StatusLine
from tests.fakes.scripted_service import Answer
from tests.tui.conftest import ask, ready, until
from tests.tui.plans import small

FEW_KEYS = "⏎ send f1 help ^n new ^r again ^↑ browse ^q quit"
KEYS = "⏎ send f1 help ^n new ^r again ^↑ browse ^b chats ^o models ^g tree f2 plan ^q quit"

FULL = StatusLine(
    "ready", context_used=3900, context_limit=4096, when_full="then it stops", cached_tokens=34, prompt_tokens=39,
    prefill_tok_s=220, decode_tok_s=38.2, ttft_s=0.15, draft_gain=1.4, memory_bytes=150 << 20,
)  # fmt: skip
LOST = [
    "peak",
    "draft",
    "prompt",
    "cached",
    "first",
    "then it stops",
    "38.2",
    "3900",
]  # in this order, as it gets narrow


async def shown_at(pilot, width: int) -> str:
    await pilot.resize_terminal(width, 24)
    await until(lambda: pilot.app.chat.status_bar.size.width <= width - 4)
    return pilot.app.chat.status_bar.render().plain


async def test_what_is_needed_least_goes_first(make_app):
    app = make_app()
    async with app.run_test(size=(130, 24)) as pilot:
        await ready(app)
        app.chat.status_bar.line = FULL
        app.chat.query_one("#bottom").styles.max_width = None
        gone: list[str] = []
        for width in range(130, 14, -3):
            said = await shown_at(pilot, width)
            assert len(said) <= app.chat.status_bar.size.width
            now = [word for word in LOST if word not in said]
            assert now[: len(gone)] == gone, f"at {width}: {said}"
            gone = now
            assert now == LOST[: len(now)], f"at {width}: {said}"
        assert said == "● ready" and gone == LOST


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, "● ready   38.2 tok/s   ━━━━━━━━━━ 265/4096   first 0.15 s   0 cached +34 new"),
        (40, "● ready  38.2 tok/s  ━━━ 265/4096"),
    ],
)
async def test_after_an_answer(make_app, width, expected):
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await ready(app)
        app.chat.status_bar.line = StatusLine(
            "ready", context_used=265, context_limit=4096, prompt_tokens=34, prefill_tok_s=220, decode_tok_s=38.2,
            ttft_s=0.15,
        )  # fmt: skip
        assert await shown_at(pilot, width) == expected


async def test_a_disk_that_refuses_is_said_at_any_width(make_app):
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await ready(app)
        app.chat.set_status(unsaved="disk full", decode_tok_s=38.2, context_used=3900, context_limit=4096)
        assert "not saved: disk full" in await shown_at(pilot, 40)


async def test_the_memory_bar_is_drawn_when_its_figures_change(make_app):
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(app)
        bar = app.chat.memory_bar
        bar.plan = small("/models/tiny.gguf")
        await pilot.pause()
        empty = bar.render().plain
        bar.context = (1000, 2048)
        await pilot.pause()
        assert bar._drawn.plain != empty and bar._drawn == bar._text()


async def test_keys_that_do_not_fit_give_way_to_the_one_that_leaves(make_app):
    app = make_app()
    async with app.run_test(size=(160, 24)) as pilot:
        await ready(app)
        bar = app.chat.query_one("KeyBar")
        whole = bar.render().plain
        assert whole.split() == KEYS.split()
        await pilot.resize_terminal(60, 24)
        await until(lambda: bar.size.width < 60)
        assert bar.render().plain.split() == FEW_KEYS.split()


async def test_keys_are_those_of_what_has_the_focus(make_app):
    app = make_app()
    async with app.run_test(size=(160, 24)) as pilot:
        await ready(app)
        await ask(pilot, "go")
        bar = app.chat.query_one("KeyBar")
        assert "send" in bar.render().plain and "copy code" not in bar.render().plain
        app.chat.transcript.focus()
        await until(lambda: "copy code" in bar.render().plain and "send" not in bar.render().plain)


async def test_a_key_can_be_clicked(make_app):
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await ready(app)
        bar = app.chat.query_one("KeyBar")
        x = bar.render().plain.index("help") + bar.gutter.left
        assert bar.key_at(0) is None and bar.key_at(x).does == "help"
        await pilot.click(bar, offset=(x, 0))
        await until(lambda: app.screen is not app.chat)
        assert type(app.screen).__name__ == "HelpScreen"


async def test_esc_is_among_the_keys_while_it_stops_something(make_app):
    answer = Answer("one two three", hold_at=1)
    app = make_app(answer)
    async with app.run_test(size=(120, 30)) as pilot:
        await ready(app)
        bar = app.chat.query_one("KeyBar")
        assert "stop" not in bar.render().plain
        await ask(pilot, "count", wait=False)
        await until(lambda: "esc stop" in bar.render().plain)
        await app.chat.action_stop_answer()
        answer.released.set()
        await until(lambda: "stop" not in bar.render().plain)


async def test_branches_are_among_the_keys_where_there_are_some(make_app):
    app = make_app()
    async with app.run_test(size=(120, 30)) as pilot:
        await ask(pilot, "go")
        app.chat.transcript.focus()
        bar = app.chat.query_one("KeyBar")
        await until(lambda: "copy" in bar.render().plain)
        assert "branch" not in bar.render().plain and "unfold" not in bar.render().plain
