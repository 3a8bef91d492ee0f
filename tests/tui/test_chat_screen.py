"""The chat screen under the pilot: what a person does, and what is then on screen, on disk and asked of the engine."""

from __future__ import annotations

import gc
import time

import pytest
from textual import events

from localinfer.engine.params import EngineOptions
from localinfer.errors import DoesNotFit, TooSlow
from localinfer.settings import Settings
from localinfer.tui.app import LocalinferApp
from localinfer.tui.hints import sentence
from localinfer.tui.screens.confirm import ConfirmScreen
from localinfer.tui.widgets.message_view import MessageView
from tests.fakes.scripted_service import KILLED, Answer, ScriptedService, long_markdown
from tests.tui.conftest import ask, ready, shown, until
from tests.tui.plans import plan


async def test_a_question_is_answered_and_saved(make_app, store):
    app = make_app(Answer("It is **Paris**."))
    async with app.run_test() as pilot:
        await ask(pilot, "capital of France?")
        assert "It is Paris." in shown(app)
        assert app.chat.status_bar.line.state == "ready"
        assert app.chat.status_bar.line.decode_tok_s == 38.2
        assert app.bridge.service.asked[0][0] == [("user", "capital of France?")]
    saved = store.list()
    assert [info.title for info in saved] == ["capital of France?"]
    assert [m.text for m in store.read(saved[0].id).path()] == ["capital of France?", "It is **Paris**."]


async def test_the_second_turn_sends_the_first(make_app):
    app = make_app(Answer("one"), Answer("two"))
    async with app.run_test() as pilot:
        await ask(pilot, "first")
        await ask(pilot, "second")
        assert app.bridge.service.asked[1][0] == [("user", "first"), ("assistant", "one"), ("user", "second")]


async def test_escape_stops_within_200_ms_and_keeps_the_partial_text(make_app, store):
    app = make_app(Answer(long_markdown(2000), tok_s=80), Answer("again"))
    async with app.run_test() as pilot:
        await ask(pilot, "go", wait=False)
        view = await answer_with_text(app)
        began = time.process_time()  # a busy machine must not fail this: what counts is our own share
        app.post_message(events.Key("escape", None))  # pilot.press would wait for the screen to come to rest
        await until(lambda: app.session.turn is None)
        assert time.process_time() - began < 0.2
        await until(lambda: "stopped" in shown(app))
        kept = view.text
        assert kept and app.bridge.service.n_cancels == 1
        assert store.read(app.session.conversation.id).path()[-1].text == kept
        await ask(pilot, "and now")
        assert app.bridge.service.asked[1][0][1] == ("assistant", kept)


async def answer_with_text(app) -> MessageView:
    await until(lambda: app.chat.answering.view is not None and app.chat.answering.view.text)
    return app.chat.answering.view


async def test_escape_while_the_prompt_is_read_leaves_no_empty_answer(make_app):
    app = make_app(Answer("late", prompt_s=5))
    async with app.run_test() as pilot:
        await ask(pilot, "go", wait=False)
        await until(lambda: app.chat.status_bar.line.state == "reading")
        await pilot.press("escape")
        await until(lambda: app.session.turn is None)
        await pilot.pause()
        assert [view.role for view in app.chat.transcript.views] == ["user"]


async def test_reading_shows_how_far_it_is(make_app):
    app = make_app(Answer("x", prompt_tokens=100, prompt_s=0.4))
    async with app.run_test() as pilot:
        await ask(pilot, "go", wait=False)
        await until(lambda: app.chat.status_bar.line.detail == "50/100")
        assert app.chat.status_bar.line.fraction == 0.5


async def test_a_killed_engine_leaves_the_text_and_is_started_again(make_app, store):
    service = ScriptedService([Answer("one two three four five six", fail_after=3), Answer("better")])
    app = make_app(service=service)
    async with app.run_test() as pilot:
        await ask(pilot, "go")
        assert "one two three" in shown(app) and sentence(KILLED.message) in shown(app)
        assert app.chat.status_bar.line.state == "failed"
        await pilot.press("ctrl+r")
        await until(lambda: "better" in shown(app) and app.session.turn is None)
        assert len(service.opened) == 2
    assert [m.state for m in store.read(app.session.conversation.id).messages.values()] == ["", "failed", "eos"]


async def test_a_model_that_does_not_fit_says_so(make_app):
    service = ScriptedService(open_error=DoesNotFit("needs 30 GiB, 20 GiB may be used", "--ctx 4096 would do"))
    app = make_app(service=service)
    async with app.run_test() as pilot:
        await until(lambda: "Needs 30 GiB" in shown(app))
        assert "A context of 4096 (/reload 4096) would do." in shown(app)
        await ask(pilot, "hello?")
        assert [m.text for m in app.session.conversation.path()] == ["hello?"]


async def test_a_model_that_would_be_very_slow_is_started_when_the_user_wants_it(make_app):
    service = ScriptedService(open_error=TooSlow("pages: 10 GiB per token over 5.1 GB/s, at most 0.48 tok/s"))
    app = make_app(service=service)
    async with app.run_test() as pilot:
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        assert "at most 0.48 tok/s" in app.screen.question
        assert service.opened[0][1].least_tok_s == 1.0
        await pilot.press("y")
        await until(lambda: app.chat.status_bar.line.state == "ready")
        assert [options.least_tok_s for _, options in service.opened] == [1.0, 0.0]


async def test_a_model_that_would_be_very_slow_is_left_alone_when_the_user_says_no(make_app):
    service = ScriptedService(open_error=TooSlow("pages: 10 GiB per token over 5.1 GB/s, at most 0.48 tok/s"))
    app = make_app(service=service)
    async with app.run_test() as pilot:
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("n")
        await until(lambda: not isinstance(app.screen, ConfirmScreen))
        await pilot.pause()
        assert len(service.opened) == 1 and app.chat.status_bar.line.state == "failed"


async def test_a_lowered_memory_limit_is_in_the_status_line(make_app):
    less = plan("qwen3-0.6b-q8_0", EngineOptions(weight_budget=200 * 10**6))
    answer = Answer(notice="the memory limit was lowered to 668 MiB", notice_plan=less, text="word " * 400, tok_s=20.0)
    app = make_app(answer)
    async with app.run_test(size=(140, 30)) as pilot:
        await ask(pilot, "q", wait=False)
        await until(lambda: "limit now 22.00 GiB, weights are paged" in app.chat.status_bar.render().plain)
        await pilot.press("escape")


async def test_a_message_sent_while_the_model_loads_waits_for_it(make_app):
    app = make_app(service=ScriptedService([Answer("hi")], load_s=0.4))
    async with app.run_test() as pilot:
        await ask(pilot, "early")
        assert "hi" in shown(app)


async def test_escape_while_the_model_loads_stops_the_turn_not_the_loading(make_app):
    app = make_app(service=ScriptedService([Answer("hi")], load_s=3.0))
    async with app.run_test() as pilot:
        await ask(pilot, "early", wait=False)
        await until(lambda: app.session.turn is not None)
        await app.chat.stop()
        await until(lambda: app.session.turn is None and app.chat.answering.view is None)
        await until(lambda: app.engine_alive)
        await pilot.pause()
        assert app.bridge.service.asked == [] and app.chat.status_bar.line.state == "ready"


async def test_escape_sequences_and_markup_are_shown_not_executed(make_app):
    app = make_app(Answer("\x1b[2J\x1b]0;owned\x07 [red]x[/red] [@click=app.quit]y[/]"))
    async with app.run_test() as pilot:
        await ask(pilot, "[bold]\x1b[31m")
        text = shown(app)
        assert "␛[2J␛]0;owned␇ [red]x[/red] [@click=app.quit]y[/]" in text
        assert "[bold]␛[31m" in text and "\x1b" not in text


async def test_thinking_is_folded_and_unfolds(make_app):
    app = make_app(Answer("The answer.", thinking="First this,\n\nthen that."))
    async with app.run_test() as pilot:
        await ask(pilot, "go")
        assert "▸ thought" in shown(app) and "then that." not in shown(app)
        await pilot.press("ctrl+t")
        assert "│ then that." in shown(app)
        await pilot.press("ctrl+t")
        assert "then that." not in shown(app)
        assert app.session.conversation.path()[-1].thinking == "First this,\n\nthen that."


async def test_the_reading_position_stays_while_text_streams(make_app):
    app = make_app(Answer(long_markdown(2000), tok_s=400))
    async with app.run_test(size=(80, 20)) as pilot:
        await ask(pilot, "go", wait=False)
        transcript = app.chat.transcript
        await until(lambda: transcript.virtual_size.height > 60)
        assert transcript.following
        app.chat.action_page(-1)
        app.chat.action_page(-1)
        top, height = transcript.scroll_offset.y, transcript.virtual_size.height
        assert not transcript.following
        await until(lambda: transcript.virtual_size.height > height + 20)
        assert transcript.scroll_offset.y == top
        assert app.chat.query_one("#badge").display
        await app.chat.stop()
        await pilot.press("ctrl+end")
        await pilot.pause()
        assert transcript.following and not app.chat.query_one("#badge").display


async def test_a_scrollbar_that_appears_stands_where_the_reader_is(make_app):
    app = make_app(Answer(long_markdown(250)))
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, "go")
        transcript = app.chat.transcript
        await until(lambda: transcript.show_vertical_scrollbar)
        assert transcript.scroll_y == transcript.max_scroll_y > 0
        assert transcript.vertical_scrollbar.position == transcript.scroll_y


async def test_resize_while_streaming_keeps_going(make_app):
    app = make_app(Answer(long_markdown(400), tok_s=400))
    async with app.run_test(size=(120, 40)) as pilot:
        await ask(pilot, "go", wait=False)
        await answer_with_text(app)
        for size in ((40, 12), (250, 80), (80, 24), (40, 12)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.05)
        await until(lambda: app.session.turn is None, 10)
        assert all(sum(len(t) for t, _ in v.row(i)) <= 40 for v in app.chat.transcript.views for i in range(v.n_rows))
        assert app.chat.transcript.following


async def test_a_small_window_keeps_the_composer_and_some_text(make_app):
    app = make_app(Answer("Paris"))
    async with app.run_test(size=(40, 12)) as pilot:
        await ask(pilot, "capital?")
        assert app.chat.composer.region.bottom <= 12 and app.chat.transcript.size.height >= 4
        assert app.chat.status_bar.region.bottom <= 12


@pytest.fixture
def full_disk(monkeypatch) -> list[int]:
    """The disk refuses until the list is cleared."""
    import localinfer.history as history

    real, full = history._write_all, [1]

    def write(file, data):
        if full:
            raise OSError(28, "No space left on device")
        real(file, data)

    monkeypatch.setattr(history, "_write_all", write)
    return full


async def test_a_conversation_saved_with_a_failing_disk_says_so_and_catches_up(make_app, store, full_disk):
    app = make_app(Answer("one"), Answer("two"))
    async with app.run_test() as pilot:
        await ask(pilot, "first")
        assert any("No space left" in toast.message for toast in app._notifications)
        full_disk.clear()
        await ask(pilot, "second")
        assert app.session.conversation.write_error == ""
    texts = [m.text for m in store.read(app.session.conversation.id).path()]
    assert texts == ["first", "one", "second", "two"]


@pytest.mark.parametrize(("policy", "said"), [("stop", "then it stops"), ("drop", "next to go: “short”")])
async def test_a_context_that_fills_up_says_what_comes_next(make_app, policy, said):
    app = make_app(Answer(prompt_tokens=100), Answer(prompt_tokens=1500), Answer(prompt_tokens=1500, left_out=2))
    app.options = EngineOptions(context_full=policy)
    async with app.run_test(size=(120, 30)) as pilot:
        await ask(pilot, "short")
        assert said not in app.chat.status_bar.render().plain
        await ask(pilot, "long")
        assert said in app.chat.status_bar.render().plain
        await ask(pilot, "and [b]on[/b]")
        if policy == "drop":  # the first turn is gone now
            assert "next to go: “long”" in app.chat.status_bar.render().plain


async def test_sampling_comes_from_the_settings_the_command_line_and_the_conversation(store):
    settings = Settings(temperature=0.1, top_k=7, max_tokens=50)
    app = LocalinferApp(ScriptedService(), "/m/t.gguf", sampling={"top_k": 5}, store=store, settings=settings)
    async with app.run_test() as pilot:
        await ask(pilot, "/set min_p 0.2", wait=False)
        await ask(pilot, "go")
        params = app.bridge.service.asked[0][1]
        assert (params.temperature, params.top_k, params.min_p, params.max_tokens) == (0.1, 5, 0.2, 50)


@pytest.mark.parametrize(
    ("setting", "option", "said", "expected"),
    [
        ("auto", "", "", None), ("on", "", "", True), ("on", "off", "", False), ("off", "off", "on", True),
        ("off", "", "auto", None), ("auto", "on", "maybe", True),
    ],
)  # fmt: skip
async def test_thinking_is_the_models_own_habit_until_somebody_chooses(store, setting, option, said, expected):
    """The conversation goes before the command line, that before the settings; what means nothing changes nothing."""
    settings = Settings(thinking=setting)
    app = LocalinferApp(ScriptedService(), "/m/t.gguf", store=store, settings=settings, thinking=option)
    async with app.run_test() as pilot:
        if said:
            await ask(pilot, f"/think {said}", wait=False)
        await ask(pilot, "go")
        assert app.bridge.service.settings[0].get("thinking") is expected
    again = store.read(app.session.conversation.id)
    assert again.params == ({"thinking": said} if said in ("on", "auto") else {})


async def test_settings_of_an_imported_conversation_that_mean_nothing_here_are_named_and_left_out(store, tmp_path):
    """They came with the file; an answer must not fail by them."""
    source = store.new()
    source.configure("", {"temperature": "hot", "top_k": 7.5, "min_p": 0.2, "mirostat": 2, "thinking": "hard"})
    source.add(0, "user", "hello")
    (tmp_path / "saved.json").write_text(store.export_json(source))
    app = LocalinferApp(ScriptedService(), "/m/t.gguf", store=store)
    async with app.run_test(size=(120, 40)) as pilot:
        await ask(pilot, f"/import {tmp_path / 'saved.json'}", wait=False)
        await until(lambda: app._notifications)
        told = next(n.message for n in app._notifications)
        assert "temperature='hot', top_k=7.5, mirostat=2, thinking='hard'" in told and "min_p" not in told
        await ask(pilot, "go")
        params = app.bridge.service.asked[0][1]
        assert (params.temperature, params.top_k, params.min_p) == (0.8, 40, 0.2)
        assert "thinking" not in app.bridge.service.settings[0]


async def test_an_answer_can_be_reworded_as_a_branch(make_app, store):
    app = make_app(Answer("Lyon"), Answer("Two million."))
    async with app.run_test() as pilot:
        await ask(pilot, "capital?")
        await pilot.press("ctrl+up", "e")
        app.chat.composer.put("Paris")
        await pilot.press("enter")
        await pilot.pause()
        assert "Paris" in shown(app) and "‹ 2/2 ›" in shown(app) and len(app.bridge.service.asked) == 1
        await ask(pilot, "people?")
        assert app.bridge.service.asked[1][0][1] == ("assistant", "Paris")
    assert store.read(app.session.conversation.id).path()[1].state == "edited"


async def test_leaving_while_the_disk_is_full_asks_first(make_app, full_disk):
    app = make_app(Answer("one"))
    async with app.run_test() as pilot:
        await ask(pilot, "first")
        assert "not saved: No space left" in app.chat.status_bar.render().plain
        await ask(pilot, "/new", wait=False)
        await until(lambda: any("not saved" in n.message and "/export" in n.message for n in app._notifications))
        assert "first" in shown(app)
        await pilot.press("ctrl+q")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("n")
        full_disk.clear()
        app.chat._save_again()
        assert "not saved" not in app.chat.status_bar.render().plain
        await pilot.press("ctrl+q")
        await until(lambda: app.return_code == 0)


async def test_what_is_attached_is_counted_while_it_is_typed(make_app, tmp_path):
    (tmp_path / "[notes].md").write_text("one two three", encoding="utf-8")
    app = make_app()
    async with app.run_test():
        await ready(app)

        def said() -> str:
            return (app.chat.composer.border_subtitle or "").replace("\\[", "[")

        app.chat.composer.put("read @[notes].md")
        await until(lambda: said() == "[notes].md 10 tokens")
        await app.close_model()
        app.chat.composer.put("please read @[notes].md")
        await until(lambda: said() == "[notes].md about 3 tokens")
        app.chat.composer.put("nothing")
        await until(lambda: said() == "")


async def test_streamed_text_does_not_lay_the_screen_out_anew(make_app, monkeypatch):
    answer = Answer(long_markdown(600), tok_s=600, hold_at=300)
    app = make_app(answer)
    async with app.run_test(size=(100, 30)) as pilot:
        await ask(pilot, "go", wait=False)
        await until(lambda: app.chat.transcript.show_vertical_scrollbar)
        await pilot.pause()
        layouts = []
        refresh = app.chat._refresh_layout
        monkeypatch.setattr(app.chat, "_refresh_layout", lambda *a, **k: (layouts.append(1), refresh(*a, **k)))
        before = app.chat.transcript.virtual_size.height
        answer.released.set()
        await until(lambda: app.chat.answering.view is None)
        assert app.chat.transcript.virtual_size.height > before + 10
        assert len(layouts) <= 3
        assert app.chat.transcript.vertical_scrollbar.window_virtual_size == app.chat.transcript.virtual_size.height


async def test_a_turn_that_the_end_of_the_app_overtakes_leaves_nothing_behind(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        await ready(app)
        app.chat.composer.put("go")
        app.chat.send("go")
        app.workers.cancel_all()  # as leaving does, here before the turn's task has run at all
        await pilot.pause()
    gc.collect()  # a coroutine that was never started complains when it is collected, which fails this test
    assert app.bridge.service.asked == []


async def test_without_a_model_the_chat_says_how_to_get_one(make_app):
    app = make_app(model="")
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("escape")
        await until(lambda: app.screen is app.chat)
        assert "Ctrl+O" in str(app.chat.query_one("#welcome-model").content)


async def test_a_full_disk_is_seen_in_a_narrow_window_too(make_app):
    app = make_app()
    async with app.run_test(size=(40, 12)) as pilot:
        await ask(pilot, "hello")
        app.chat.set_status(unsaved="No space left on device")
        assert "not saved" in app.chat.status_bar.render().plain
