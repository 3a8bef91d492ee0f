"""The app ends with its terminal, or when told to, and keeps what was written until then."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from localinfer.history_store import HistoryStore
from tests.fakes.terminal import FIRST_FRAME, Terminal

ROOT = Path(__file__).parents[2]
SCRIPT = json.dumps({"n_tokens": 20_000, "tok_s": 80.0})
CODE = f"import sys; from tests.fakes.synthetic_engine import run_app; sys.exit(run_app({SCRIPT!r}))"
RESTORED = "\x1b[?1049l"  # the screen that was there before


def answering(tmp_path: Path, **options: bool) -> Terminal:
    """The app with an answer that would go on for minutes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LOCALINFER_HOME": str(tmp_path)}
    terminal = Terminal([sys.executable, "-c", CODE], environment, 80, 24, **options)
    terminal.wait_for(*FIRST_FRAME, "ready")
    terminal.type("go\r")
    terminal.wait_for("memory and bandwidth")
    return terminal


def saved(tmp_path: Path) -> tuple[str, str]:
    """Text and state of the answer that is on disk."""
    store = HistoryStore(tmp_path / "data" / "sessions")
    answer = store.read(store.list()[0].id).path()[-1]
    return answer.text, answer.state


@pytest.mark.parametrize("controlling", [True, False], ids=["hangup", "end of file only"])
def test_a_terminal_that_is_gone_ends_the_app(tmp_path, controlling):
    with answering(tmp_path, controlling=controlling) as terminal:
        terminal.hang_up()
        assert terminal.process.wait(30) == 128 + signal.SIGHUP
    text, state = saved(tmp_path)
    assert "memory and bandwidth" in text and state == "cancelled"


def test_told_to_end_it_leaves_the_screen_as_it_was(tmp_path):
    with answering(tmp_path) as terminal:
        terminal.process.terminate()
        terminal.wait_for(RESTORED)
        assert terminal.process.wait(30) == 128 + signal.SIGTERM
    text, state = saved(tmp_path)
    assert "memory and bandwidth" in text and state == "cancelled"
