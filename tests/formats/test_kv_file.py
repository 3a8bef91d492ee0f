"""Saved KV caches: what was written comes back, what is not whole is refused, the old file outlives a killed writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from localinfer.errors import FormatError
from localinfer.formats.kv_file import UNFINISHED, Interrupted, KVFile, write_kv_file

IDENTITY = {"context": "4096"}


def write(path, tokens=(1, 2, 3), data=b"abc" * 1000, **kwargs):
    buffers = [memoryview(data)[:1000], memoryview(data)[1000:]]
    return write_kv_file(path, IDENTITY, tokens, [("pages 0", buffers), ("state 0", [])], {"token_s": 0.5}, **kwargs)


def test_what_was_written_comes_back(tmp_path):
    path = tmp_path / "a.kv"
    assert write(path) == path.stat().st_size
    with KVFile.open(path) as f:
        assert (f.tokens, f.identity, f.extra) == ([1, 2, 3], IDENTITY, {"token_s": 0.5})
        assert bytes(f.piece("pages 0", 3000)) == b"abc" * 1000
        assert bytes(f.piece("state 0", 0)) == b""
        with pytest.raises(FormatError, match=r"pages 0: missing, or of another length"):
            f.piece("pages 0", 2999)
        with pytest.raises(FormatError, match=r"pages 1: missing"):
            f.piece("pages 1")
    assert path.stat().st_mode & 0o777 == 0o600 and [p.name for p in tmp_path.iterdir()] == ["a.kv"]


@pytest.mark.parametrize("cut", [0, 5, 39, 4096, 8000, -1, -32])
def test_a_file_cut_short_is_refused(tmp_path, cut):
    path = tmp_path / "a.kv"
    write(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(FormatError, match=r"cut short|damaged"):
        KVFile.open(path)


def test_every_damaged_byte_is_found(tmp_path):
    """Of the index when opened, of a piece when it is read; padding belongs to nobody."""
    path = tmp_path / "a.kv"
    write(path)
    good = path.read_bytes()
    for at in [*range(8), 4096, 4100, 8192, 9000, *range(12288, len(good))]:
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(FormatError), KVFile.open(path) as f:
            f.piece("pages 0")
    path.write_bytes(good)


def test_giving_up_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.kv"
    write(path)
    answers = iter([True, True, False])
    with pytest.raises(Interrupted):
        write(path, tokens=[9], go_on=lambda: next(answers))
    with KVFile.open(path) as f:
        assert f.tokens == [1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 1


KILLED = """
import sys, time
from pathlib import Path
from localinfer.formats.kv_file import write_kv_file
def slow():
    yield memoryview(bytes(100_000))
    print("half way", flush=True)
    time.sleep(60)
write_kv_file(Path(sys.argv[1]), {}, [9], [("pages 0", slow())], {})
"""


def test_killed_while_writing_the_old_file_still_opens(tmp_path):
    path = tmp_path / "a.kv"
    write(path)
    writer = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None and writer.stdout.readline() == b"half way\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    with KVFile.open(path) as f:
        assert f.tokens == [1, 2, 3]
    (left,) = tmp_path.glob(f"*{UNFINISHED}")
    assert time.time() - left.stat().st_mtime < 60
