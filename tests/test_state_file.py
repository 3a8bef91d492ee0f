"""What the program learned: replaced whole, private, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localinfer.state_file import read_state, replace_file, replace_state


def test_written_for_the_user_alone_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "state" / "speed.json"
    assert read_state(path) == {}
    replace_state(path, {"a": 1})
    replace_state(path, {"b": [2]})
    assert read_state(path) == {"b": [2]}
    assert path.stat().st_mode & 0o777 == 0o600 and list(path.parent.iterdir()) == [path]
    path.write_text("[1, 2")
    assert read_state(path) == {}


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "speed.json"
    replace_file(path, b"old")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
