"""Adoption of a tensor's bytes: the window, its view, and every case in which bytes are copied, with the reason."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.mlx.adopt import PAGE, adopt

DATA = np.random.default_rng(0).integers(0, 256, 5 * PAGE + 96, np.uint8)


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[mmap.mmap]:
    path = tmp_path / "tensors"
    path.write_bytes(DATA.tobytes())
    with path.open("rb") as file:
        yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def as_bytes(words: mx.array, n: int) -> np.ndarray:
    return np.array(words).view(np.uint8)[:n]


@pytest.mark.parametrize("offset", [0, 32, PAGE - 32, PAGE, 2 * PAGE + 4064])
@pytest.mark.parametrize("n_bytes", [210, 4096, PAGE + 34])
def test_window_begins_at_a_page_and_the_view_at_the_tensor(mapped: mmap.mmap, offset: int, n_bytes: int) -> None:
    """A device that shares memory is played by one that copies what it is handed."""
    windows: list[np.ndarray] = []

    def importer(window: np.ndarray) -> mx.array:
        windows.append(window)
        return mx.array(window)

    found = adopt(mapped, offset, n_bytes, 16, importer)
    start = windows[0].ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    assert start % PAGE == 0 and offset - start < PAGE
    assert not windows[0].flags.writeable and windows[0].dtype == np.uint32
    assert found.copied_bytes == 0 and found.window_bytes == windows[0].nbytes < n_bytes + PAGE + 4
    assert np.array_equal(as_bytes(found.words, n_bytes), DATA[offset : offset + n_bytes])


def test_device_that_refuses_leads_to_a_counted_copy(mapped: mmap.mmap) -> None:
    """mlx-cpu does refuse."""
    found = adopt(mapped, 4096 + 32, 1234, 16)
    assert (found.copied_bytes, found.window_bytes) == (1234, 0)
    assert "without a copy" in found.reason
    assert np.array_equal(as_bytes(found.words, 1234), DATA[4128 : 4128 + 1234])


@pytest.mark.parametrize(
    ("offset", "n_bytes", "reason"),
    [(40, 64, "starts at byte 40, not a multiple of 16"), (len(DATA) - 34, 34, "not a multiple"),
     (len(DATA) - 16, 14, "")],
)  # fmt: skip
def test_misaligned_tensors_are_copied(mapped: mmap.mmap, offset: int, n_bytes: int, reason: str) -> None:
    found = adopt(mapped, offset, n_bytes, 16, mx.array)
    assert (found.copied_bytes == n_bytes) == bool(reason) and reason in found.reason
    assert np.array_equal(as_bytes(found.words, n_bytes), DATA[offset : offset + n_bytes])


def test_file_that_ends_within_the_last_word(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(DATA[:210].tobytes())
    with path.open("rb") as file:
        short = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    found = adopt(short, 0, 210, 2, mx.array)
    assert found.copied_bytes == 210 and "ends within" in found.reason
    assert np.array_equal(as_bytes(found.words, 210), DATA[:210])


def test_map_stays_while_an_array_looks_into_it(tmp_path: Path) -> None:
    """What an adopting device would hold is the numpy window; the map refuses to close under it."""
    path = tmp_path / "held"
    path.write_bytes(DATA.tobytes())
    windows: list[np.ndarray] = []

    def importer(window: np.ndarray) -> mx.array:
        windows.append(window)
        return mx.array(window)

    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    adopt(mapped, 0, 64, 16, importer)
    with pytest.raises(BufferError):
        mapped.close()
    windows.clear()
    mapped.close()
