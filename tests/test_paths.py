"""File places: the platform's, or all below one folder."""

from __future__ import annotations

import stat

import pytest

from localinfer import paths


def test_one_folder_for_everything(monkeypatch, tmp_path):
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    places = [paths.data_dir(), paths.state_dir(), paths.config_dir(), paths.cache_dir(), paths.models_dir()]
    assert len(set(places)) == 5 and all(tmp_path in p.parents for p in places)
    assert paths.ledger_file().parent == paths.state_dir()


def test_the_platforms_places(monkeypatch):
    monkeypatch.delenv(paths.HOME_VARIABLE)
    for place in (paths.data_dir(), paths.state_dir(), paths.config_dir(), paths.cache_dir()):
        assert place.is_absolute() and "localinfer" in str(place)


@pytest.mark.parametrize(
    ("platform", "places"),
    [
        ("linux", (".local/share", ".local/state", ".config", ".cache")),
        ("darwin", (*["Library/Application Support"] * 3, "Library/Caches")),
    ],
)
def test_where_the_platforms_want_files(monkeypatch, tmp_path, platform, places):
    for variable in (paths.HOME_VARIABLE, "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", platform)
    found = (paths.data_dir(), paths.state_dir(), paths.config_dir(), paths.cache_dir())
    assert found == tuple(tmp_path / place / "localinfer" for place in places)


def test_xdg_variables_are_followed_where_they_are_absolute(monkeypatch, tmp_path):
    monkeypatch.delenv(paths.HOME_VARIABLE)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "d"))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert paths.data_dir() == tmp_path / "d" / "localinfer"
    assert paths.state_dir() == tmp_path / ".local/state/localinfer"


def test_asking_creates_nothing_and_writing_creates_privately(monkeypatch, tmp_path):
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    path = paths.ledger_file()
    assert not path.parent.exists()
    assert paths.make_parent(path) == path
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
