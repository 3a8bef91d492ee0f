"""$EDITOR: its arguments, its failures, and the screen that comes back whatever it does."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from textual.app import SuspendNotSupported

from localinfer.errors import UsageError
from localinfer.tui.external_editor import edit_text
from tests.tui.conftest import ready, until


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """editor(code) makes a Python script $VISUAL, called with an argument before the file's name."""

    def make(code: str) -> None:
        script = tmp_path / "my editor.py"
        script.write_text(code, encoding="utf-8")
        monkeypatch.setenv("VISUAL", f"{sys.executable} '{script}' --wait")

    return make


def test_the_command_may_have_arguments_and_quotes(editor):
    editor("import sys; assert sys.argv[1] == '--wait'; open(sys.argv[2], 'a').write(' and more\\n')")
    assert edit_text("text") == "text and more"


def test_what_went_wrong_is_said(editor, monkeypatch):
    editor("raise SystemExit(3)")
    with pytest.raises(UsageError, match="ended with status 3"):
        edit_text("text")
    for command in ("no-such-editor --wait", "'unbalanced"):
        monkeypatch.setenv("VISUAL", command)
        with pytest.raises(UsageError, match="cannot start the editor"):
            edit_text("text")


def test_ctrl_c_in_the_editor_is_the_editors(editor):
    """The terminal sends it to all programs in front; ours goes on waiting."""
    before = signal.getsignal(signal.SIGINT)
    editor(f"import os, signal, sys; os.kill({os.getpid()}, signal.SIGINT); open(sys.argv[2], 'w').write('done')")
    assert edit_text("text") == "done"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("keys", [["f4"], [*"/settings", "enter"]], ids=["message", "settings"])
async def test_the_screen_comes_back_from_an_editor_that_fails(make_app, monkeypatch, keys):
    states = []

    @contextmanager
    def suspend() -> Iterator[None]:  # as Textual's: an error that passes through leaves the screen away
        states.append("away")
        yield
        states.append("back")

    monkeypatch.setenv("VISUAL", "no-such-editor")
    app = make_app()
    async with app.run_test() as pilot:
        await ready(app)
        monkeypatch.setattr(app, "suspend", suspend)
        await pilot.press(*keys)
        await until(lambda: any("Cannot start the editor" in n.message for n in app._notifications))
        assert states == ["away", "back"]


async def test_a_terminal_that_cannot_be_lent_is_said(make_app, monkeypatch):
    def suspend():
        raise SuspendNotSupported

    app = make_app()
    async with app.run_test() as pilot:
        await ready(app)
        monkeypatch.setattr(app, "suspend", suspend)
        await pilot.press("h", "i", "f4")
        await until(lambda: any("cannot be lent" in n.message for n in app._notifications))
        assert app.chat.composer.text == "hi"
