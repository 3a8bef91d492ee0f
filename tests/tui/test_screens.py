"""The other screens under the pilot: conversations, models, plan, help, themes."""

from __future__ import annotations

import io
import json
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from textual.css.stylesheet import Stylesheet
from textual.widgets import Input, OptionList, ProgressBar

import localinfer.tui.models as models
from localinfer.errors import UsageError
from localinfer.history_store import ConversationInfo
from localinfer.store import OURS_TO_DELETE
from localinfer.tui.models import ModelRow
from localinfer.tui.screens.ask_text import AskTextScreen
from localinfer.tui.screens.confirm import ConfirmScreen
from localinfer.tui.screens.conversations import ConversationsScreen, label
from localinfer.tui.screens.models import ModelsScreen, shortened
from localinfer.tui.screens.plan import PlanScreen
from localinfer.tui.session import model_name
from localinfer.tui.widgets.choice import Choice
from localinfer.tui.widgets.dialog_keys import DialogKeys
from tests.fakes.scripted_service import Answer, ScriptedService
from tests.tui import plans
from tests.tui.conftest import ask, ready, shown, until


@pytest.fixture
def three_chats(store):
    for text in ("about whales", "about stars", "about bread"):
        conversation = store.new()
        conversation.add(0, "user", text)
        conversation.add(1, "assistant", f"an answer {text}", state="eos")
        conversation.close()
    return store


async def open_chats(pilot) -> OptionList:
    await pilot.press("ctrl+b")
    await until(lambda: isinstance(pilot.app.screen, ConversationsScreen))
    options = pilot.app.screen.query_one(OptionList)
    await until(lambda: options.option_count)
    return options


async def test_a_saved_conversation_is_found_and_opened(make_app, three_chats):
    app = make_app()
    async with app.run_test() as pilot:
        options = await open_chats(pilot)
        assert options.option_count == 3
        await pilot.press(*"STARS")
        await until(lambda: options.option_count == 1)
        await pilot.press("enter")
        await pilot.pause()
        assert "an answer about stars" in shown(app)
        await ask(pilot, "go on")
        assert [role for role, _ in app.bridge.service.asked[0][0]] == ["user", "assistant", "user"]


async def test_a_conversation_is_renamed_pinned_and_deleted(make_app, three_chats):
    app = make_app()
    async with app.run_test() as pilot:
        options = await open_chats(pilot)
        await pilot.press("down", "f5")
        await until(lambda: sum(info.pinned for info in three_chats.list()) == 1)
        await pilot.press("f6")
        await pilot.pause()
        app.screen.query_one(Input).value = "renamed"
        await pilot.press("enter")
        await until(lambda: any(info.title == "renamed" for info in three_chats.list()))
        await until(lambda: isinstance(app.screen, ConversationsScreen))
        options.focus()
        await pilot.press("delete")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(lambda: len(three_chats.list()) == 2)


async def test_a_conversation_open_elsewhere_is_continued_in_a_copy(make_app, three_chats):
    other = three_chats.open(three_chats.list("whales")[0].id)
    app = make_app()
    async with app.run_test() as pilot:
        app.chat.open_conversation(other.id)
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(lambda: "about whales" in shown(app))
        assert app.session.conversation.id != other.id
    other.close()


async def test_a_conversation_is_exported_and_imported(make_app, tmp_path):
    app = make_app(Answer("Paris"))
    async with app.run_test() as pilot:
        await ask(pilot, "capital?")
        for text in ("/export out.md", "/export out.json", "/export out.md"):
            await ask(pilot, text, wait=False)
            await pilot.pause()
        assert "## User\n\ncapital?" in (tmp_path / "out.md").read_text(encoding="utf-8")
        assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["messages"][1]["text"] == "Paris"
        assert any("Cannot write" in n.message for n in app._notifications)
        await ask(pilot, "/new", wait=False)
        await pilot.pause()
        assert shown(app) == ""
        await ask(pilot, "/import out.json", wait=False)
        await until(lambda: "Paris" in shown(app))


ROWS = [
    ModelRow("qwen3-0.6b-q8_0", "/m/small.gguf", 639_000_000, "localinfer"),
    ModelRow("qwen3-30b-a3b-q4_k", "/m/large.gguf", 18_600_000_000, "ollama"),
    ModelRow("broken", "/m/broken.gguf", 12, "lmstudio", trouble="empty"),
]


@pytest.fixture
def three_models(monkeypatch):
    monkeypatch.setattr(
        "localinfer.tui.screens.models.local_models", lambda opened: [ModelRow(**vars(row)) for row in ROWS]
    )


def planner(path, options):
    return plans.small(path, options) if "small" in path else plans.large(path, options)


async def open_models(app) -> ModelsScreen:
    await until(lambda: isinstance(app.screen, ModelsScreen))
    await until(lambda: all(row.verdict or row.trouble for row in app.screen.rows) and app.screen.rows)
    return app.screen


async def test_without_a_model_the_list_opens_and_enter_loads_one(make_app, three_models):
    app = make_app(service=ScriptedService([Answer("hi")], planner=planner), model="")
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await open_models(app)
        labels = [str(option.prompt) for option in screen.query_one(OptionList).options]
        assert "fits" in labels[0] and "Q8_0" in labels[0] and "40k" in labels[0]
        assert "Ollama" in labels[1] and "empty" in labels[2]
        await pilot.press("enter")
        await until(lambda: app.engine_alive)
        assert app.bridge.service.opened[0][0] == "/m/small.gguf"
        await ask(pilot, "hello")
        assert "hi" in shown(app)


async def test_only_own_models_are_deleted_and_only_after_a_yes(make_app, three_models, monkeypatch):
    deleted = []
    monkeypatch.setattr(
        "localinfer.tui.screens.models.delete_model", lambda row: deleted.append(row.name) or row.n_bytes
    )
    app = make_app(service=ScriptedService(planner=planner), model="")
    async with app.run_test(size=(100, 24)) as pilot:
        await open_models(app)
        await pilot.press("down", "d")
        await pilot.pause()
        assert any("belongs to Ollama: ollama rm qwen3-30b-a3b-q4_k." in n.message for n in app._notifications)
        await pilot.press("up", "d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("n")
        await until(lambda: isinstance(app.screen, ModelsScreen))
        assert deleted == []
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(lambda: deleted == ["qwen3-0.6b-q8_0"])


async def test_a_pull_shows_progress_stops_and_goes_on(make_app, three_models, monkeypatch):
    tries = []

    def pull(reference, progress):
        tries.append(reference)
        for done in range(100 if len(tries) == 1 else 1):
            progress(done, 100)
            time_passes.wait(0.02)

    import threading

    time_passes = threading.Event()
    monkeypatch.setattr("localinfer.tui.screens.models.pull", pull)
    app = make_app(service=ScriptedService(planner=planner), model="")
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await open_models(app)
        await pilot.press("p")
        await pilot.pause()
        app.screen.query_one(Input).value = "hf:a/b:Q4_0"
        await pilot.press("enter")
        await until(lambda: "of 100 B" in str(screen.query_one("#pull-text").content))
        await pilot.press("s")
        await until(lambda: not screen.pulling)
        assert "Paused: p goes on." in str(screen.query_one("#pull-text").content)
        await pilot.press("p")
        await pilot.pause()
        assert app.screen.query_one(Input).value == "hf:a/b:Q4_0"
        await pilot.press("enter")
        await until(lambda: len(tries) == 2 and not screen.pulling)


NO_SUCH = "No such repository.\nLook at its name."


async def test_a_failing_pull_says_why(make_app, three_models, monkeypatch):
    def pull(reference, progress):
        raise UsageError("no such repository", "look at its name")

    monkeypatch.setattr("localinfer.tui.screens.models.pull", pull)
    app = make_app(service=ScriptedService(planner=planner), model="")
    async with app.run_test(size=(100, 24)) as pilot:
        screen = await open_models(app)
        screen._start_pull("hf:x/y")
        await until(lambda: any(n.message == NO_SUCH for n in app._notifications))
        assert "p tries again" in str(screen.query_one("#pull-text").content)
        await pilot.pause()


async def test_details_show_the_metadata_of_a_file(make_app, tmp_path):
    from tests.planner.sparse_headers import write_header

    path = write_header(tmp_path, "qwen3-0.6b-q8_0")
    rows = {key: value for key, value in models.details(str(path)) if key}
    assert rows["general.architecture"] == "qwen3" and rows["tokenizer.ggml.tokens"].startswith("array of")


async def test_the_plan_says_what_is_missing_and_a_repair_mends_it(make_app):
    app = make_app(service=ScriptedService(planner=plans.large), model="/m/large.gguf")
    async with app.run_test(size=(100, 34)) as pilot:
        await pilot.press("f2")
        await until(lambda: isinstance(app.screen, PlanScreen) and app.screen.plan is not None)
        screen = app.screen
        screen.query_one("#plan-ctx", Input).value = "64k"
        await until(lambda: screen.plan.ask.ctx == 65536)
        assert "does not fit" in str(screen.query_one("#plan-verdict").content)
        await pilot.press("ctrl+l")
        assert app.screen is screen
        await pilot.press("f7")
        await until(lambda: screen.plan.ask.kv_k == "q8_0")
        assert "It fits" in str(screen.query_one("#plan-verdict").content)
        await pilot.press("ctrl+l")
        await until(lambda: app.screen is app.chat and len(app.bridge.service.opened) == 2)
        options = app.bridge.service.opened[1][1]
        assert (options.ctx, options.kv) == (65536, "q8_0")


async def test_the_title_of_a_long_name_is_cut_at_its_end_and_keys_scroll(make_app):
    app = make_app(service=ScriptedService(planner=plans.small), model="/m/a-model-with-a-really-long-name-Q4_K_M.gguf")
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("f2")
        await until(lambda: isinstance(app.screen, PlanScreen) and app.screen.plan is not None)
        await pilot.pause()
        assert "a-model-with" in app.export_screenshot()
        await pilot.press("pagedown")
        assert app.screen.query_one("VerticalScroll").scroll_offset.y > 0


async def test_nonsense_in_the_context_field_is_named(make_app):
    app = make_app(service=ScriptedService(planner=plans.small), model="/m/small.gguf")
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("f2")
        await until(lambda: isinstance(app.screen, PlanScreen) and app.screen.plan is not None)
        app.screen.query_one("#plan-ctx", Input).value = "-3"
        await until(lambda: "expected" in str(app.screen.query_one("#plan-verdict").content))
        await pilot.press("f2")
        await until(lambda: app.screen.plan.ask.kv_k == "q8_0")


async def test_every_control_of_the_plan_is_loaded_with(make_app):
    app = make_app(service=ScriptedService(planner=plans.small), model="/m/small.gguf")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2")
        await until(lambda: isinstance(app.screen, PlanScreen) and app.screen.plan is not None)
        screen = app.screen
        await pilot.press("f3", "f4", "f5", "f6")
        await until(lambda: screen.query_one("#plan-weights", Choice).chosen == "3/4")
        await pilot.click("#plan-kv")
        await until(lambda: screen.plan.ask.kv_k == "q8_0" and screen.plan.ask.weight_budget)
        await pilot.press("ctrl+l")
        await until(lambda: app.screen is app.chat and len(app.bridge.service.opened) == 2)
        options = app.bridge.service.opened[1][1]
        assert (options.kv, options.drafts, options.backend, options.context_full) == ("q8_0", False, "cpu", "drop")
        assert options.weight_budget == int(0.75 * plans.small("").model.tensor_bytes)


async def test_settings_are_edited_and_hold_at_once(make_app, monkeypatch):
    from localinfer.settings import settings_file

    def editor(text, name):
        assert 'theme = "localinfer-dark"' in text and name == "settings.toml"
        return text.replace("localinfer-dark", "localinfer-light").replace("temperature = 0.8", "temperature = 0")

    monkeypatch.setattr("localinfer.tui.external_editor.edit_text", editor)
    app = make_app()
    monkeypatch.setattr(app, "suspend", nullcontext)
    async with app.run_test() as pilot:
        await ask(pilot, "/settings", wait=False)
        await until(lambda: not app.current_theme.dark)
        assert app.session.params.temperature == 0 and "temperature = 0 " in settings_file().read_text("utf-8")
        await ask(pilot, "go")
        assert app.bridge.service.asked[0][1].temperature == 0


@pytest.mark.parametrize("keys", [("ctrl+o", "enter"), ("f2", "ctrl+l")])
async def test_another_model_waits_until_the_answer_is_written(make_app, three_models, keys):
    app = make_app(service=ScriptedService([Answer("word " * 500, tok_s=50)], planner=planner), model="/m/small.gguf")
    async with app.run_test(size=(100, 24)) as pilot:
        await ask(pilot, "go", wait=False)
        await until(lambda: app.chat.answering.view is not None and app.chat.answering.view.text)
        await pilot.press(keys[0])
        await until(
            lambda: app.screen is not app.chat and (getattr(app.screen, "plan", 0) or app.screen.query("#models-head"))
        )
        await until(lambda: getattr(app.screen, "rows", 0) or getattr(app.screen, "plan", 0))
        await pilot.press(keys[1])
        await until(lambda: any("still being written" in n.message for n in app._notifications))
        assert app.screen is app.chat and len(app.bridge.service.opened) == 1 and app.session.turn is not None
        await pilot.press("escape")


async def test_a_model_file_is_opened_by_its_path(make_app, three_models):
    app = make_app(service=ScriptedService([Answer("hi")], planner=planner), model="")
    async with app.run_test(size=(100, 24)) as pilot:
        await open_models(app)
        await pilot.press("o")
        await until(lambda: isinstance(app.screen, AskTextScreen))
        app.screen.query_one(Input).value = "/elsewhere/other.gguf"
        await pilot.press("enter")
        await until(lambda: app.engine_alive)
        assert app.bridge.service.opened[0][0] == "/elsewhere/other.gguf"


def test_the_list_has_what_lies_beside_the_open_model_and_knows_what_may_be_deleted(tmp_path):
    for name in ("a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    rows = models.local_models(str(tmp_path / "a.gguf"))
    assert [(row.name, row.source, row.trouble, row.deletable) for row in rows] == [
        ("a", tmp_path.name, "", False), ("b", tmp_path.name, "", False),
    ]  # fmt: skip
    assert [ModelRow("m", "m", 1, source).deletable for source in OURS_TO_DELETE] == [True] * len(OURS_TO_DELETE)


def test_a_file_that_is_named_by_its_hash_has_ollamas_name(monkeypatch, tmp_path):
    digest = "ab" * 32
    root = tmp_path / "ollama"
    manifest = root / "manifests" / "registry.ollama.ai" / "library" / "llama3.2" / "3b"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    blob = root / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir()
    blob.write_bytes(b"GGUF")
    monkeypatch.setenv("OLLAMA_MODELS", str(root))
    assert model_name(str(blob), "Llama 3.2 Instruct") == "llama3.2:3b"
    assert model_name(f"/elsewhere/{'cd' * 32}", "Its Own Name") == "Its Own Name"


def test_one_file_of_ollamas_is_one_row_with_all_its_names(monkeypatch, tmp_path):
    from localinfer.store import LocalModel

    blob = tmp_path / "sha256-12"
    found = [LocalModel(name, blob, 7, "ollama", 0.0) for name in ("llama3.2:3b", "llama3.2:latest")]
    monkeypatch.setattr("localinfer.store.find_models", lambda: found)
    [row] = models.local_models()
    assert (row.name, row.owner) == ("llama3.2:3b, llama3.2:latest", "Ollama")
    assert models.delete_refusal(row) == "It belongs to Ollama: ollama rm llama3.2:3b llama3.2:latest."


async def test_reload_with_another_context(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        await until(lambda: app.engine_alive)
        await ask(pilot, "/reload 1k", wait=False)
        await until(lambda: len(app.bridge.service.opened) == 2)
        assert app.bridge.service.opened[1][1].ctx == 1024


async def test_help_lists_every_command(make_app):
    from localinfer.tui.commands import COMMANDS

    app = make_app()
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        console = Console(width=60, file=io.StringIO())
        for widget in app.screen.query("Static"):
            console.print(widget.content)
        text = console.file.getvalue()
        assert all(f"/{command.name}" in text for command in COMMANDS)
        await pilot.press("escape")
        assert app.screen is app.chat


async def test_the_theme_is_switched_and_kept(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        assert app.current_theme.dark
        await ask(pilot, "/theme", wait=False)
        await pilot.pause()
        assert not app.current_theme.dark


async def test_quitting_while_an_answer_streams_keeps_it(make_app, store):
    app = make_app(Answer("word " * 500, tok_s=100))
    async with app.run_test() as pilot:
        await ask(pilot, "go", wait=False)
        await until(lambda: app.chat.answering.view is not None and app.chat.answering.view.text)
        await pilot.press("ctrl+q")
    last = store.read(app.session.conversation.id).path()[-1]
    assert last.state == "cancelled" and last.text.startswith("word")


def test_saved_conversations_tell_the_time_of_today_the_day_of_this_year_or_the_date():
    from localinfer.tui.screens.conversations import _when

    noon = time.mktime((2026, 6, 15, 12, 0, 0, 0, 0, -1))
    assert _when(noon - 3600, noon) == "11:00"
    assert _when(noon - 40 * 86400, noon) == time.strftime("%d %b", time.localtime(noon - 40 * 86400))
    assert _when(noon - 300 * 86400, noon).startswith("2025-")


async def test_styles_are_read_anew_for_new_colours_only(make_app, monkeypatch):
    read = []
    reparse = Stylesheet.reparse
    monkeypatch.setattr(Stylesheet, "reparse", lambda self: (read.append(1), reparse(self)))
    app = make_app()
    async with app.run_test() as pilot:
        await ready(app)
        await pilot.press("f1")  # a screen that was not shown before
        await pilot.pause()
        assert not read
        ground = app.screen.styles.background
        app.switch_theme()
        await pilot.pause()
        assert read and app.screen.styles.background != ground


async def test_a_click_on_a_dialogs_key_is_as_good_as_the_key(make_app):
    app, answers = make_app(), []
    async with app.run_test(size=(60, 20)) as pilot:
        for key, answer in (("y", True), ("n", False)):
            app.push_screen(ConfirmScreen("Really?"), answers.append)
            await pilot.pause()
            x = app.screen.query_one(DialogKeys).render().plain.index(key + " ")
            await pilot.click(DialogKeys, offset=(x + 2, 0))
            await until(lambda answer=answer: answers[-1:] == [answer])


async def test_an_empty_list_of_conversations_says_so(make_app):
    app = make_app()
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("ctrl+b")
        await until(lambda: isinstance(app.screen, ConversationsScreen))
        none = app.screen.query_one("#chats-none")
        await until(lambda: none.display and "No conversations yet" in str(none.content))
        await pilot.press("x")
        await until(lambda: "Nothing found" in str(none.content))


@pytest.mark.parametrize("width", [33, 51, 81])
def test_a_conversation_is_one_line_with_its_day_at_the_right(width):
    info = ConversationInfo("1", "A rather long title of a conversation " * 4, 1_600_000_000.0, 12, True)
    line = label(info, False, width).plain
    assert cell_len(line) == width and line.startswith("★ A rather") and line.endswith("2020-09-13")
    two = label(replace(info, excerpt="found here " * 20), False, width).plain.split("\n")
    assert len(two) == 2 and cell_len(two[1]) <= width


def test_names_are_shortened_in_the_middle():
    assert shortened("qwen3", 9) == "qwen3"
    assert shortened("DeepSeek-R1-Distill-Qwen-32B-Q4_K_M", 16) == "DeepSeek-…Q4_K_M"
    assert cell_len(shortened("日本語日本語日本語", 9)) <= 9


async def test_the_pull_and_its_bar_are_seen_in_a_low_window(make_app, three_models, monkeypatch):
    monkeypatch.setattr("localinfer.tui.screens.models.pull", lambda reference, progress: progress(3, 100))
    app = make_app(service=ScriptedService(planner=planner), model="")
    async with app.run_test(size=(40, 12)) as pilot:
        screen = await open_models(app)
        screen.pulling = "hf:somebody/Some-Very-Long-Name-Of-A-Model-GGUF:Q4_K_M"
        screen.query_one("#pull-area").display = True
        screen._progress(120, 1000)
        await pilot.pause()
        bar = screen.query_one(ProgressBar)
        assert bar.region.height == 1 and bar.region.bottom <= 12
        assert str(screen.query_one("#pull-text").content).startswith("120 B of 1000 B, 12 %")
