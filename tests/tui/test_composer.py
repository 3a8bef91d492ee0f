"""Writing a message: lines, history, pastes, files, commands."""

from __future__ import annotations

import pytest
from textual import events

from localinfer.errors import UsageError
from localinfer.tui.attachments import MAX_BYTES, attach, path_being_typed, path_completions
from localinfer.tui.commands import COMMANDS, completions, parse_command
from localinfer.tui.screens.chat_commands import ChatCommands
from localinfer.tui.screens.details import DetailsScreen
from tests.fakes.scripted_service import Answer
from tests.tui.conftest import ask, finished, until


async def test_ctrl_j_breaks_the_line_and_enter_sends(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("a", "ctrl+j", "b")
        assert app.chat.composer.text == "a\nb"
        await pilot.press("enter")
        await finished(app)
        assert app.bridge.service.asked[0][0] == [("user", "a\nb")]


async def test_up_and_down_step_through_what_was_said(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        await ask(pilot, "one")
        await ask(pilot, "two")
        await pilot.press("d", "up")
        assert app.chat.composer.text == "two"
        await pilot.press("up", "up")
        assert app.chat.composer.text == "one"
        await pilot.press("down", "down")
        assert app.chat.composer.text == "d"


async def test_a_paste_never_sends_and_a_large_one_is_folded(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        composer = app.chat.composer
        await composer._on_paste(events.Paste("two\nlines\n"))
        await pilot.pause()
        assert composer.text == "two\nlines\n" and not app.bridge.service.asked
        composer.put("look: ")
        big = "\n".join(f"row {i}" for i in range(100))
        await composer._on_paste(events.Paste(big))
        await pilot.pause()
        assert composer.text == f"look: [paste 1: 100 lines, {len(big):,} characters]"
        await pilot.press("enter")
        await finished(app)
        assert app.bridge.service.asked[0][0] == [("user", f"look: {big}")]


async def test_end_at_the_end_of_the_text_is_the_conversations(make_app):
    app = make_app(Answer("line\n\n" * 60))
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, "go")
        await pilot.press("pageup", "a", "home", "end")
        assert not app.chat.transcript.following and app.chat.composer.cursor_location == (0, 1)
        await pilot.press("end")
        await pilot.pause()
        assert app.chat.transcript.following


async def test_the_commands_leave_room_for_what_is_typed_in_a_low_window(make_app):
    app = make_app()
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("/")
        await pilot.pause()
        assert app.chat.completion.menu.size.height == 3 and app.chat.composer.region.bottom <= 11
        assert app.chat.completion.menu.render().plain.rstrip().endswith(f"↓ {len(COMMANDS) - 3} more")
        await pilot.press(*["down"] * 5)
        assert app.chat.completion.menu.value == "/edit"
        assert "/edit" in app.chat.completion.menu.render().plain


async def test_a_slash_offers_commands_and_tab_completes(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("/", "s", "y")
        await pilot.pause()
        assert app.chat.completion.menu.display and app.chat.completion.menu.value == "/system TEXT"
        await pilot.press("tab")
        assert app.chat.composer.text == "/system "
        await pilot.press(*"hi", "enter")
        await pilot.pause()
        assert app.session.conversation.system == "hi" and app.chat.composer.text == ""
        await ask(pilot, "q")
        assert app.bridge.service.asked[0][0] == [("system", "hi"), ("user", "q")]


async def test_set_alone_shows_what_there_is_and_a_wrong_name_is_said(make_app):
    app = make_app()
    async with app.run_test(size=(40, 12)) as pilot:
        await ask(pilot, "/set", wait=False)
        await until(lambda: isinstance(app.screen, DetailsScreen))
        assert ("top_k", "40") in app.screen.rows
        await pilot.press("escape")
        await ask(pilot, "/set warmth 3", wait=False)
        await until(lambda: any("found 'warmth'" in n.message for n in app._notifications))


async def test_settings_of_a_conversation_reach_the_engine(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        for text in ("/set temperature 0", "/set seed 7", "/set top_p nonsense", "/set top_p 7"):
            await ask(pilot, text, wait=False)
            await pilot.pause()
        await ask(pilot, "q")
        params = app.bridge.service.asked[0][1]
        assert (params.temperature, params.seed, params.top_p) == (0.0, 7, 0.95)
        assert [n.severity for n in app._notifications].count("error") == 2


async def test_a_file_is_attached_by_its_name(make_app, tmp_path):
    (tmp_path / "notes.md").write_text("# Notes\ntext", encoding="utf-8")
    app = make_app(Answer("read"))
    async with app.run_test() as pilot:
        await pilot.press(*"see @no")
        await pilot.pause()
        assert app.chat.completion.menu.value == "@notes.md"
        await pilot.press("tab", "enter")
        await finished(app)
        assert app.bridge.service.asked[0][0] == [("user", "see @notes.md\n\n`notes.md`:\n```md\n# Notes\ntext\n```")]


def test_what_is_no_file_stays_text(tmp_path):
    assert attach("mail @alice and me@home", tmp_path) == ("mail @alice and me@home", [])


def test_backticks_in_a_file_do_not_end_its_fence(tmp_path):
    (tmp_path / "a.md").write_text("```\nx\n```\n", encoding="utf-8")
    text, _ = attach("@a.md", tmp_path)
    assert text.endswith("````md\n```\nx\n```\n````")


def test_a_binary_or_huge_file_is_refused(tmp_path):
    (tmp_path / "b").write_bytes(b"\0\1")
    (tmp_path / "c").write_bytes(b"x" * (MAX_BYTES + 1))
    for name in "bc":
        with pytest.raises(UsageError, match="expected"):
            attach(f"@{name}", tmp_path)


def test_paths_complete_with_folders_marked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "x.txt").touch()
    (tmp_path / ".hidden").touch()
    assert path_completions("") == ["dir/"]
    assert path_completions("dir/") == ["dir/x.txt"]
    assert path_completions("nowhere/") == []
    assert path_being_typed("see @di") == "di" and path_being_typed("me@home") is None


def test_a_path_at_the_start_is_no_command():
    assert parse_command("/etc/hosts is a file") is None
    assert parse_command("/set seed 3") is not None
    assert completions("/the") and not completions("/theme now")


def test_every_command_has_its_method():
    assert all(hasattr(ChatCommands, f"command_{command.name}") for command in COMMANDS)
