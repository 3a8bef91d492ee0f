"""The chat of plain lines, and what the app does on terminals that cannot do much."""

from __future__ import annotations

import os
import sys

import pytest

from localinfer.errors import FormatError, TooSlow, UsageError
from localinfer.settings import Settings, load_settings
from localinfer.tui.app import new_session, run_app
from localinfer.tui.bridge import EngineOptions, Prompt, SamplingParams
from localinfer.tui.plain import run_plain
from localinfer.tui.session import ChatSession
from tests.fakes.scripted_service import Answer, ScriptedService
from tests.tui.conftest import ask, shown


@pytest.fixture
def typed(monkeypatch):
    """Give the program these lines on its standard input."""

    def give(text: str) -> None:
        read, write = os.pipe()
        os.write(write, text.encode())
        os.close(write)
        monkeypatch.setattr(sys, "stdin", os.fdopen(read))

    return give


def test_lines_are_answered_and_saved(typed, store, capsys):
    typed("first\nsecond\n")
    service = ScriptedService([Answer("one \x1b[31m"), Answer("two", thinking="hm")])
    assert run_plain(service, "/m/tiny.gguf", EngineOptions(), ChatSession(store, SamplingParams())) == 0
    out = capsys.readouterr().out
    assert "one ␛[31m" in out and "two" in out and "hm" not in out and "38.2 tok/s" in out
    assert [m.text for m in store.read(store.list()[0].id).path()] == ["first", "one \x1b[31m", "second", "two"]


def test_a_plain_chat_has_the_users_settings(store):
    """Its system prompt once did not hold here."""
    settings = Settings(system_prompt="be kind", thinking="off", top_k=7)
    session = new_session(store, settings, {"top_k": 5})
    assert session.prompt(session.say("hello").id)[0] == Prompt("system", "be kind")
    assert session.turn_settings["thinking"] is False and session.params.top_k == 5


def test_a_failed_turn_is_one_line_and_the_chat_goes_on(typed, store, capsys):
    typed("first\nsecond\n")
    service = ScriptedService([Answer("a b c d", fail_after=2)])
    assert run_plain(service, "/m/tiny.gguf", EngineOptions(), ChatSession(store, SamplingParams())) == 0
    out = capsys.readouterr().out
    assert out.count("error: the engine process was killed") == 1 and "no model is open" in out


def test_a_model_that_cannot_be_loaded_gives_its_exit_code(typed, store, capsys):
    typed("")
    service = ScriptedService(open_error=FormatError("x.gguf: not a GGUF file", "is it a web page?"))
    assert run_plain(service, "x.gguf", EngineOptions(), ChatSession(store, SamplingParams())) == 4
    assert capsys.readouterr().err == "error: x.gguf: not a GGUF file\nhint: is it a web page?\n"


SLOW = "pages: 10.4 GB per token over 5.1 GB/s, at most 0.49 tok/s"


def test_what_would_be_very_slow_is_asked_about_first(typed, store, capsys):
    typed("y\nfirst\n")
    service = ScriptedService([Answer("one")], open_error=TooSlow(SLOW))
    assert run_plain(service, "/m/tiny.gguf", EngineOptions(), ChatSession(store, SamplingParams())) == 0
    out = capsys.readouterr().out
    assert f"{SLOW}. Start it all the same? (y/n)" in out and "one" in out
    assert [options.least_tok_s for _, options in service.opened] == [1.0, 0.0]


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "perhaps\n"])
def test_what_would_be_very_slow_is_not_started_without_a_yes(typed, store, capsys, answer):
    typed(answer)
    service = ScriptedService([Answer("one")], open_error=TooSlow(SLOW))
    assert run_plain(service, "/m/tiny.gguf", EngineOptions(), ChatSession(store, SamplingParams())) == 0
    assert len(service.opened) == 1 and not service.asked and "one" not in capsys.readouterr().out


def test_notices_are_lines_beside_the_answer(typed, store, capsys):
    typed("first\n")
    service = ScriptedService([Answer("one", notice="the memory limit was lowered\x1b[2J")])
    assert run_plain(service, "/m/tiny.gguf", EngineOptions(), ChatSession(store, SamplingParams())) == 0
    shown = capsys.readouterr()
    assert shown.err == "note: the memory limit was lowered␛[2J\n" and "one" in shown.out


def test_a_dumb_terminal_without_a_model_is_told(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(UsageError, match="TERM=dumb"):
        run_app(None)


async def test_without_colour_the_screen_has_none(make_app, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(Answer("**bold** `code`"))
    async with app.run_test() as pilot:
        await ask(pilot, "q")
        assert "bold code" in shown(app)
        colours = {
            (segment.style.color, segment.style.bgcolor)
            for strip in app.screen._compositor.render_strips()
            for segment in strip.apply_filter(app._filters[0], app.background_colors[0])
            if segment.style
        }
        assert all(c is None or c.triplet is None or len(set(c.triplet)) == 1 for pair in colours for c in pair)


async def test_the_theme_chosen_is_the_one_to_start_with(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        await ask(pilot, "/theme", wait=False)
        await pilot.pause()
    assert load_settings().theme == "localinfer-light"
