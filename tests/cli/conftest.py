"""The CLI in process, with its files under a temporary folder and a scripted engine where a test asks for one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localinfer.cli.main import main
from tests.fakes.scripted import OPENER

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing of the user's is read or written."""
    monkeypatch.setenv("LOCALINFER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "home"


@pytest.fixture
def cli(capfd):
    """cli(*arguments) -> (exit code, stdout, stderr)."""

    def run(*arguments):
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as stop:  # --help and the like
            code = stop.code or 0
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err or code == 1
        return code, out, err

    return run


@pytest.fixture
def scripted(monkeypatch):
    """Make `run` talk to the scripted engine; a model path is then a JSON script."""
    import localinfer.cli.run as command

    monkeypatch.setattr(command, "resolve", lambda reference: reference)
    monkeypatch.setattr(command, "EngineService", lambda: _service())
    return sys.executable


def _service():
    from localinfer.engine.service import EngineService

    return EngineService(OPENER)
