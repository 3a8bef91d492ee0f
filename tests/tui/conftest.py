"""Apps for the pilot: a scripted engine, a folder of their own, no blinking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from localinfer.history_store import HistoryStore
from localinfer.tui.app import LocalinferApp
from tests.fakes.scripted_service import Answer, ScriptedService


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A coroutine that was made and never started is a turn, or a start, that got lost."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("error:coroutine .* was never awaited:RuntimeWarning"))
            item.add_marker(pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALINFER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    return HistoryStore(tmp_path / "home" / "data" / "sessions")


@pytest.fixture
def make_app(store: HistoryStore) -> Callable[..., LocalinferApp]:
    """make_app(Answer(...), ...) -> an app on a scripted engine; `service=` for another one."""

    def make(
        *answers: Answer, service: ScriptedService | None = None, model: str = "/models/tiny.gguf"
    ) -> LocalinferApp:
        return LocalinferApp(service or ScriptedService(list(answers) or [Answer()]), model, store=store)

    return make


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for something that takes its own time; AssertionError when it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.005)


async def ready(app: LocalinferApp) -> None:
    """Until the model is open."""
    await until(lambda: app.chat.is_mounted and app.chat.status_bar.line.state == "ready")


async def ask(pilot, text: str, wait: bool = True) -> None:
    """Type a message and send it; with `wait`, until the answer is complete."""
    app = pilot.app
    app.chat.composer.focus()
    app.chat.composer.put(text)
    if not wait:
        app.chat.composer.action_send()  # pilot.press would wait for the screen to come to rest
    else:
        await pilot.press("enter")
        await until(lambda: app.session.turn is None and app.chat.answering.view is None)
        await pilot.pause()


async def finished(app: LocalinferApp) -> None:
    """Until no answer is being written."""
    await until(
        lambda: app.session.turn is None and app.chat.answering.view is None and app.session.conversation.messages
    )
    await asyncio.sleep(0)


def shown(app: LocalinferApp) -> str:
    """All text of the conversation as it is on screen."""
    from localinfer.tui.markdown.rows import row_text

    views = app.chat.transcript.views
    return "\n".join(row_text(view.row(i)).rstrip() for view in views for i in range(view.n_rows))
