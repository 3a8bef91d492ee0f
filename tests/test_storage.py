"""What a disk is measured by."""

from __future__ import annotations

import os

import pytest

from localinfer import storage

SIZE = 20 * 2**20


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALINFER_HOME", str(tmp_path / "home"))


def test_a_measured_disk_is_remembered(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(SIZE))
    measured = storage.storage_speed(path)
    assert measured is not None and measured.bytes_s > 1e6
    assert storage.known_speed(path) == measured


@pytest.mark.skipif(not hasattr(os.stat_result, "st_blocks"), reason="this system does not tell what is on the disk")
def test_a_file_that_is_mostly_holes_says_nothing_of_its_disk(tmp_path):
    """Zeros that are on no disk come at the speed of memory: a forecast from them once said 43 GB/s."""
    path = tmp_path / "download"
    with path.open("wb") as f:
        f.write(os.urandom(2**20))
        f.truncate(SIZE)
    assert storage.storage_speed(path) is None
    assert storage.known_speed(path) is None


def test_a_small_file_says_nothing(tmp_path):
    path = tmp_path / "small"
    path.write_bytes(bytes(2**20))
    assert storage.read_speed(path) == 0.0
