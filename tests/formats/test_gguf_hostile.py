"""Files that are broken, cut, made up, or something else: one line naming file, field and offset, at once."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from localinfer.errors import FormatError, LocalinferError, UnsupportedModel, UsageError
from localinfer.formats.gguf import GGUFFile
from tests.fakes import gguf_writer as w
from tests.formats.gguf_mutations import run

ONE = [w.f32_tensor("a", (4,))]
TWO = [w.f32_tensor("a", (4,)), w.f32_tensor("b", (4,))]


def with_counts(n_tensors: int, n_metadata: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_metadata) + rest


def one_value(type_id: int, payload: bytes) -> bytes:
    return with_counts(0, 1, w.string("key") + struct.pack("<I", type_id) + payload)


def array_of(element: int, count: int, payload: bytes = b"") -> bytes:
    return one_value(w.ARRAY, struct.pack("<IQ", element, count) + payload)


def one_tensor(name: bytes, n_dims: int, dims: list[int], type_id: int = 0, offset: int = 0) -> bytes:
    row = w.string(name) + struct.pack(f"<I{len(dims)}Q", n_dims, *dims) + struct.pack("<IQ", type_id, offset)
    return with_counts(1, 0, row).ljust(256, b"\0")


def aligned(value) -> bytes:
    return w.gguf_bytes({"general.alignment": value}, ONE)


HUGE = 2**64 - 1
SOUND = w.gguf_bytes({"general.architecture": "llama", "list": ["a", "b"]}, TWO)

# name -> (content, what the message must say besides the file's name)
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty file"),
    "three bytes": (b"GGU", "24 bytes, but the file ends at 3"),
    "magic only": (b"GGUF", "24 bytes, but the file ends at 4"),
    "no tensor count": (b"GGUF\3\0\0\0\0\0\0\0", "the file ends at 12"),
    "version 1": (b"GGUF" + struct.pack("<III", 1, 0, 0) + bytes(20), "version 1 at offset 4"),
    "version 0": (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "version 0 at offset 4"),
    "version 4": (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version 4 at offset 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), r"big-endian GGUF \(version 3"),
    "big-endian magic": (b"FUGG" + struct.pack(">IQQ", 3, 0, 0), "big-endian GGUF"),
    "tensor count": (with_counts(HUGE, 0), f"tensor count {HUGE} at offset 8"),
    "tensor count 10": (with_counts(10, 0), "tensor count 10 at offset 8, but 24 bytes hold 0 at most"),
    "metadata count": (with_counts(0, HUGE), f"metadata count {HUGE} at offset 16"),
    "key length": (with_counts(0, 1, struct.pack("<Q", HUGE) + bytes(64)), f"key of metadata 0 at offset 24.*{HUGE}"),
    "empty key": (with_counts(0, 1, bytes(64)), "key of metadata 0 at offset 24: expected 1 to 1024 bytes, found 0"),
    "key no UTF-8": (
        with_counts(0, 1, w.string(b"\xff\xfe") + bytes(64)),
        "key of metadata 0 at offset 32 is not UTF-8",
    ),
    "same key twice": (with_counts(0, 2, (w.string("k") + w.value(1)) * 2), "metadata 'k' at offset 41 appears twice"),
    "value type": (one_value(13, bytes(64)), "metadata 'key' at offset 35: unknown value type 13"),
    "boolean": (one_value(w.BOOL, b"\2" + bytes(9)), "metadata 'key' at offset 39: a boolean must be 0 or 1, found 2"),
    "string length": (one_value(w.STRING, struct.pack("<Q", HUGE)), f"metadata 'key' is {HUGE} bytes at offset 47"),
    "string cut": (one_value(w.STRING, struct.pack("<Q", 9) + b"12345678"), "but the file ends at 55"),
    "array count": (array_of(w.UINT8, HUGE, bytes(64)), f"metadata 'key' at offset 39: {HUGE} elements"),
    "array count times size": (array_of(w.FLOAT64, 2**61, bytes(64)), f"metadata 'key' at offset 39: {2**61} elements"),
    "array beyond the file": (array_of(w.UINT32, 20, bytes(64)), "'key': array of 20 is 80 bytes at offset 51, .* 115"),
    "array of strings": (array_of(w.STRING, 2**60, bytes(64)), f"metadata 'key' at offset 39: {2**60} elements"),
    "array of strings cut": (array_of(w.STRING, 2, w.string("abc") + bytes(3)), "metadata 'key'.*file ends at 65"),
    "string in an array": (array_of(w.STRING, 2, struct.pack("<Q", HUGE) + bytes(64)), "metadata 'key' is"),
    "last string in an array": (array_of(w.STRING, 1, struct.pack("<Q", 2**40) + bytes(64)), "metadata 'key' is"),
    "nested arrays": (array_of(w.ARRAY, 1, struct.pack("<IQ", w.UINT8, 1) + bytes(64)), "an array of arrays"),
    "array element type": (array_of(77, 1, bytes(64)), "unknown value type 77"),
    "alignment 0": (aligned(0), "general.alignment' at offset .*found 0"),
    "alignment 3": (aligned(3), "general.alignment' at offset .*found 3"),
    "alignment 12": (aligned(12), "general.alignment' at offset .*found 12"),
    "alignment of 64 bits": (aligned(w.Typed(w.UINT64, 32)), "expected uint32, found uint64"),
    "alignment text": (aligned("32"), "expected uint32, found string"),
    "alignment negative": (aligned(-32), "expected uint32, found int32"),
    "alignment array": (aligned([32]), "expected uint32, found array of 1 uint32"),
    "alignment beyond the file": (aligned(2**31), "tensor 'a' at offset .*its data is 16 bytes at 2147483648"),
    "tensor name length": (
        with_counts(1, 0, struct.pack("<Q", HUGE) + bytes(64)),
        f"name of tensor 0 at offset 24.*{HUGE}",
    ),
    "empty tensor name": (one_tensor(b"", 1, [1]), "name of tensor 0 at offset 24: expected 1 to 256 bytes, found 0"),
    "tensor name no UTF-8": (one_tensor(b"\xff", 1, [1]), "name of tensor 0 at offset 32 is not UTF-8"),
    "same tensor twice": (w.gguf_bytes({}, ONE * 2), "tensor 'a' at offset 57 appears twice"),
    "five dimensions": (one_tensor(b"a", 5, [1] * 5), "tensor 'a' at offset 24: 5 dimensions; the most is 4"),
    "2**32-1 dimensions": (one_tensor(b"a", 2**32 - 1, [1]), "4294967295 dimensions"),
    "dimension 0": (one_tensor(b"a", 2, [4, 0]), r"tensor 'a' at offset 24: shape \[4, 0\] has a dimension of 0"),
    "dimensions overflow": (one_tensor(b"a", 4, [2**63] * 4), "tensor 'a' at offset 24: its data is"),
    "product wraps to 0": (one_tensor(b"a", 2, [2**32, 2**32]), f"its data is {2**66} bytes"),
    "broken row": (one_tensor(b"a", 1, [33], 2), "tensor 'a' at offset 24: Q4_0 has rows of a multiple of 32"),
    "offset off the grid": (one_tensor(b"a", 1, [1], 0, 4), "data offset 4 is no multiple of the alignment 32"),
    "offset beyond the file": (one_tensor(b"a", 1, [1], 0, 2**40), f"its data is 4 bytes at {2**40 + 64}"),
    "offset overflows": (one_tensor(b"a", 1, [1], 0, 2**64 - 32), "its data is 4 bytes at 18446744073709551648"),
    "overlap": (
        w.gguf_bytes({}, [w.f32_tensor("a", (12,)), w.Tensor("b", 0, (1,), b"1234", offset=32)]),
        "tensors 'a' and 'b' overlap at offset 128",
    ),
    "same place": (
        w.gguf_bytes({}, [w.f32_tensor("a", (1,)), w.Tensor("b", 0, (1,), b"1234", offset=0)]),
        "tensors 'a' and 'b' overlap",
    ),
    "data cut": (SOUND[:-40], "tensor 'b' at offset .*file ends at"),
    "no data": (SOUND[: w.padded(len(SOUND), 32) - 64], "tensor 'a' at offset .*file ends at"),
    "many strings": (
        array_of(w.STRING, 3_000_000, bytes(24_000_000)),
        "3000000 strings; the most in a file is",
    ),
    "header of 160 MB": (
        one_value(w.STRING, struct.pack("<Q", 160_000_000) + bytes(160_000_000)),
        "'key' is 160000000 bytes at offset 47: a header of over 134217728 bytes",
    ),
}

FOREIGN: dict[str, tuple[bytes, str]] = {
    "html": (b"\n<!DOCTYPE html><html><head>" + bytes(200), "an HTML page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 1\n", "a Git-LFS pointer"),
    "safetensors": (struct.pack("<Q", 64) + b'{"__metadata__":{}}' + bytes(100), "a safetensors file"),
    "old ggml": (b"lmgg" + bytes(100), "a GGML file from before GGUF"),
    "old ggjt": (b"tjgg" + bytes(100), "a GGJT file from before GGUF"),
    "torch": (b"PK\3\4" + bytes(100), "a zip archive"),
    "pickle": (b"\x80\x02}q" + bytes(100), "a Python pickle"),
    "gzip": (b"\x1f\x8b\x08" + bytes(100), "gzip data"),
    "json": (b'{"error":"Repository not found"}', "a JSON document"),
    "xml": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code>', "an XML document"),
    "hub error": (b"Entry not found", "an error message of a download server"),
    "zeros": (bytes(4096), "only zero bytes"),
    "noise": (b"\x7fELF" + bytes(100), "bytes 7f 45 4c 46"),
}


def refusal(path: Path) -> LocalinferError:
    """The error that opening ends in; checks what holds for every one of them."""
    start = time.process_time()
    with pytest.raises(LocalinferError) as caught:
        GGUFFile.open(path)
    error = caught.value
    assert time.process_time() - start < 1
    assert path.name in error.message
    assert (error.message + error.hint).isprintable(), "one line, no control characters"
    return error


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused_by_file_field_and_offset(tmp_path: Path, case: str):
    content, expected = BROKEN[case]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    error = refusal(path)
    assert isinstance(error, FormatError)
    assert_matches(expected, error.message)


@pytest.mark.parametrize("case", FOREIGN)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, case: str):
    content, expected = FOREIGN[case]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    error = refusal(path)
    assert isinstance(error, FormatError)
    assert_matches(f"expected a GGUF file .*found {expected}", error.message)
    assert error.hint


def assert_matches(expected: str, message: str) -> None:
    with pytest.raises(AssertionError, match=expected):
        raise AssertionError(message)


def test_every_cut_of_a_sound_file_is_refused(tmp_path: Path):
    path = tmp_path / "m.gguf"
    needed = len(SOUND) - 16  # the padding of the last tensor may be missing
    for n in range(needed):
        path.write_bytes(SOUND[:n])
        assert isinstance(refusal(path), FormatError), n
    path.write_bytes(SOUND[:needed])
    GGUFFile.open(path).close()


def test_pieces_of_a_file_cut_by_bytes_are_recognised(tmp_path: Path):
    for name in ("m.gguf-split-a", "m.gguf.part1of2"):
        (tmp_path / name).write_bytes(SOUND[:-40])
        assert "join the pieces" in refusal(tmp_path / name).hint


def test_unknown_and_removed_tensor_types(tmp_path: Path):
    for type_id, expected in ((77, "unknown tensor type 77"), (4, r"tensor type 4 \(Q4_2\) was removed")):
        (tmp_path / "m.gguf").write_bytes(one_tensor(b"a", 1, [32], type_id))
        error = refusal(tmp_path / "m.gguf")
        assert isinstance(error, UnsupportedModel)
        assert_matches(f"tensor 'a' at offset 24: {expected}", error.message)


# -- paths ------------------------------------------------------------------------------------------------------------


def no_file(folder: Path) -> Path:
    return folder / "m.gguf"


def a_folder(folder: Path) -> Path:
    (folder / "m.gguf").mkdir()
    return folder / "m.gguf"


def a_fifo(folder: Path) -> Path:
    os.mkfifo(folder / "m.gguf")
    return folder / "m.gguf"


def a_device(folder: Path) -> Path:
    (folder / "m.gguf").symlink_to("/dev/zero")
    return folder / "m.gguf"


def a_loop(folder: Path) -> Path:
    (folder / "m.gguf").symlink_to(folder / "m.gguf")
    return folder / "m.gguf"


def a_long_name(folder: Path) -> Path:
    return folder / ("m" * 300)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (no_file, "No such file"),
        (a_folder, "found a folder"),
        (a_fifo, "found no regular file"),
        (a_device, "found no regular file"),
        (a_loop, "cannot be read"),
        (a_long_name, "cannot be read"),
    ],
)
def test_paths_that_are_no_files(tmp_path: Path, make: Callable[[Path], Path], expected: str):
    error = refusal(make(tmp_path))
    assert isinstance(error, UsageError)
    assert expected in error.message


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = w.write_gguf(tmp_path / "m.gguf", {}, ONE)

    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # a mode would not stop a test that runs as root
    error = refusal(path)
    assert isinstance(error, UsageError)
    assert error.message.endswith("cannot be read: Permission denied")


def test_odd_names_stay_on_one_line(tmp_path: Path):
    path = tmp_path / "a\nb\x1b[31m.gguf"
    path.write_bytes(b"")
    with pytest.raises(FormatError) as caught:
        GGUFFile.open(path)
    assert caught.value.message.isprintable()
    with pytest.raises(UsageError, match="cannot be read: embedded null byte"):
        GGUFFile.open("a\0b")


def test_names_in_the_file_stay_on_one_line(tmp_path: Path):
    path = w.write_gguf(tmp_path / "m.gguf", {}, [w.f32_tensor("a\n\x1b[31m\u202e", (1,))] * 2)
    assert "appears twice" in refusal(path).message


# -- time and memory --------------------------------------------------------------------------------------------------

OPEN_ALL = """
import resource, sys, time
from localinfer.errors import FormatError
from localinfer.formats.gguf import GGUFFile
resource.setrlimit(resource.RLIMIT_DATA, (200 * 2**20,) * 2)
n_opened = n_refused = 0
start = time.process_time()
for path in sys.argv[1:]:
    try:
        GGUFFile.open(path).close()
        n_opened += 1
    except FormatError:
        n_refused += 1
print(n_opened, n_refused, time.process_time() - start)
"""


def open_in_200_mb(*paths: Path) -> tuple[int, int, float]:
    """How many opened, how many were refused, seconds of CPU time; in a process that may allocate 200 MB."""
    command = [sys.executable, "-c", OPEN_ALL, *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    n_opened, n_refused, seconds = result.stdout.split()
    return int(n_opened), int(n_refused), float(seconds)


def test_the_largest_header_we_allow_takes_bounded_time_and_memory(tmp_path: Path):
    """The bounds on counts hold time and memory down even where every field is sound."""
    numbers = b"".join(w.string(f"k{i}") + w.value(i) for i in range(2**14 - 1))
    strings = w.string("s") + struct.pack("<IIQ", w.ARRAY, w.STRING, 2**21) + bytes(8 * 2**21)
    tensors = b"".join(w.string(f"t{i}") + struct.pack("<IQIQ", 1, 1, 24, 32 * i) for i in range(2**16))
    head = with_counts(2**16, 2**14, numbers + strings + tensors)
    path = tmp_path / "m.gguf"
    with path.open("wb") as out:
        out.write(head)
        out.truncate(w.padded(len(head), 32) + 32 * 2**16)
    n_opened, _, seconds = open_in_200_mb(path)
    assert n_opened == 1
    assert seconds < 5  # about 1 s on an idle core


def test_refusing_takes_little_memory(tmp_path: Path):
    paths = [tmp_path / f"{i}.gguf" for i in range(len(BROKEN))]
    for path, (content, _) in zip(paths, BROKEN.values(), strict=True):
        path.write_bytes(content)
    assert open_in_200_mb(*paths)[:2] == (0, len(BROKEN))


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_files_open_or_are_refused(tmp_path: Path, seed: int):
    """A smaller run of gguf_mutations, which says what counts as a finding."""
    counts, longest = run(1500, seed, tmp_path / "mutated-00001-of-00002.gguf")
    assert counts["FormatError"] > 800 and counts["opened"] > 150 and counts["UnsupportedModel"] > 5
    assert longest < 1
