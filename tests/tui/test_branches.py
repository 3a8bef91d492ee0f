"""Editing, answering again, going on: each makes a branch, and every branch can be reached again."""

from __future__ import annotations

from localinfer.tui.widgets.tree_panel import TreePanel
from tests.fakes.scripted_service import Answer
from tests.tui.conftest import ask, finished, shown, until


def path_texts(app) -> list[str]:
    return [m.text for m in app.session.conversation.path()]


async def test_answering_again_makes_a_sibling_that_arrows_reach(make_app):
    app = make_app(Answer("first"), Answer("second"))
    async with app.run_test() as pilot:
        await ask(pilot, "q")
        await pilot.press("ctrl+r")
        await until(lambda: len(app.bridge.service.asked) == 2)
        await finished(app)
        assert path_texts(app) == ["q", "second"] and "‹ 2/2 ›" in shown(app)
        await pilot.press("ctrl+up", "left")
        await pilot.pause()
        assert path_texts(app) == ["q", "first"] and "‹ 1/2 ›" in shown(app)
        await pilot.press("left", "right")
        await pilot.pause()
        assert path_texts(app) == ["q", "second"]


async def test_editing_an_earlier_message_makes_a_branch(make_app, store):
    app = make_app(Answer("a1"), Answer("a2"), Answer("a3"))
    async with app.run_test() as pilot:
        await ask(pilot, "q1")
        await ask(pilot, "q2")
        await pilot.press("ctrl+up", "k", "k", "k", "e")
        assert app.chat.composer.text == "q1" and "edit" in str(app.chat.composer.border_title)
        await ask(pilot, "q1 changed")
        assert path_texts(app) == ["q1 changed", "a3"]
        assert app.bridge.service.asked[2][0] == [("user", "q1 changed")]
        await pilot.press("ctrl+up", "k", "left")
        await pilot.pause()
        assert path_texts(app) == ["q1", "a1", "q2", "a2"]
    assert [m.text for m in store.read(app.session.conversation.id).path()] == ["q1", "a1", "q2", "a2"]


async def test_escape_leaves_editing(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        await ask(pilot, "q")
        await ask(pilot, "/edit", wait=False)
        await pilot.pause()
        assert app.chat.editing == 1
        await pilot.press("escape")
        assert app.chat.editing is None and app.chat.composer.text == ""


async def test_going_on_starts_from_the_text_so_far(make_app):
    app = make_app(Answer("one two", reason="max_tokens"), Answer(" three"))
    async with app.run_test() as pilot:
        await ask(pilot, "q")
        assert "length limit" in shown(app)
        await ask(pilot, "/continue", wait=False)
        await until(lambda: len(app.bridge.service.asked) == 2)
        await finished(app)
        assert app.bridge.service.asked[1][0] == [("user", "q"), ("assistant", "one two")]
        assert path_texts(app) == ["q", "one two three"]
        assert app.session.conversation.siblings(2) == [2, 3]


async def test_an_unanswered_message_is_said_otherwise_not_twice(make_app):
    app = make_app(Answer("late", prompt_s=5), Answer("ok"))
    async with app.run_test() as pilot:
        await ask(pilot, "first try", wait=False)
        await until(lambda: app.chat.status_bar.line.state == "reading")
        await pilot.press("escape")
        await finished(app)
        await ask(pilot, "second try")
        assert app.bridge.service.asked[-1][0] == [("user", "second try")]


async def test_the_tree_shows_all_branches_and_enter_goes_there(make_app):
    app = make_app(Answer("alpha"), Answer("beta"))
    async with app.run_test(size=(100, 30)) as pilot:
        await ask(pilot, "q")
        await pilot.press("ctrl+r")
        await until(lambda: len(app.bridge.service.asked) == 2)
        await finished(app)
        await pilot.press("ctrl+g")
        await pilot.pause()
        panel = app.chat.query_one("TreePanel")
        assert [str(option.prompt) for option in panel.options] == ["› q", "├ alpha", "└ beta"]
        await pilot.press("up", "enter")
        await pilot.pause()
        assert path_texts(app) == ["q", "alpha"]
        await pilot.press("escape")
        await pilot.pause()
        assert not panel.display and app.focused is app.chat.composer


async def test_copying_a_message_and_a_code_block(make_app):
    app = make_app(Answer("Look:\n\n```python\nx = 1\n```\n"))
    async with app.run_test() as pilot:
        await ask(pilot, "q")
        await pilot.press("ctrl+up", "x")
        await pilot.pause()
        assert app.clipboard == "x = 1"
        await pilot.press("c")
        await pilot.pause()
        assert app.clipboard == "Look:\n\n```python\nx = 1\n```\n"


async def test_in_a_narrow_window_the_tree_takes_the_place_of_the_conversation(make_app):
    app = make_app(Answer("**Paris** is"), Answer("`Lyon`"))
    async with app.run_test(size=(40, 12)) as pilot:
        await ask(pilot, "capital?")
        app.chat.command_tree("")
        await pilot.pause()
        panel, column = app.chat.query_one(TreePanel), app.chat.query_one("#column")
        assert panel.region.x == 0 and not column.display
        assert [str(option.prompt) for option in panel.options] == ["› capital?", "Paris is"]
        await pilot.press("enter")
        await pilot.pause()
        assert column.display and not panel.display and app.focused is app.chat.composer
