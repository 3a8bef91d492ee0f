"""File places: the platform's, or all below one folder."""

from __future__ import annotations

import stat

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


def test_asking_creates_nothing_and_writing_creates_privately(monkeypatch, tmp_path):
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    path = paths.ledger_file()
    assert not path.parent.exists()
    assert paths.make_parent(path) == path
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
