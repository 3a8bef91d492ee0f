"""A header of which only the beginning is here: wherever it is cut, more is asked for, and then it is the same."""

from __future__ import annotations

import mmap

import pytest

from localinfer.errors import FormatError
from localinfer.formats.gguf_header import read_header
from localinfer.formats.gguf_prefix import MoreNeeded, array_bytes, read_prefix
from tests.fakes import gguf_writer as w

META = {
    "general.architecture": "llama",
    "a.flag": True,
    "a.words": ["", "a", "bb" * 40, "c"] * 5,
    "a.numbers": w.Typed(w.ARRAY, list(range(30)), w.UINT32),
    "a.text": "t" * 30,
    "a.number": 5,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(bytes, header) of a small file."""
    tensors = [w.f32_tensor(f"blk.{i}.weight", (8, 4)) for i in range(6)]
    path = w.write_gguf(tmp_path_factory.mktemp("prefix") / "m.gguf", META, tensors)
    with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return path.read_bytes(), read_header(data, "m.gguf")


def test_cut_anywhere(whole):
    content, header = whole
    complete = 0
    for cut in range(24, header.data_start + 1):
        here = cut
        while True:
            try:
                found = read_prefix(content[:here], len(content), "m.gguf")
                break
            except MoreNeeded as need:
                assert here < need.end <= len(content)
                here = need.end
        assert found == header
        complete += here == cut
    assert 1 <= complete <= 32  # only what lacks nothing but padding


def test_an_array_that_is_cut_is_known_by_its_key_type_and_length(whole):
    content, header = whole
    entries = sorted(header.entries.values(), key=lambda e: e.offset)
    at = next(i for i, e in enumerate(entries) if e.key == "a.words")
    kind, elements = array_bytes(content, entries[at], entries[at + 1])
    with pytest.raises(MoreNeeded) as cut:
        read_prefix(content[: entries[at].offset + 60], len(content), "m.gguf")
    assert cut.value.array.kind == kind and cut.value.array.start == entries[at].offset
    spliced = content[: entries[at].offset] + elements
    with pytest.raises(MoreNeeded) as after:
        read_prefix(spliced, len(content), "m.gguf")
    assert after.value.end > len(spliced)
    assert read_prefix(spliced + content[len(spliced) :], len(content), "m.gguf") == header


def test_damage_is_found_before_more_is_asked_for(whole):
    content, _ = whole
    with pytest.raises(FormatError, match="unknown value type 99"):
        at = content.index(b"a.flag") + len("a.flag")
        read_prefix(content[:at] + (99).to_bytes(4, "little"), len(content), "m.gguf")
    with pytest.raises(FormatError, match="the file ends at"):
        read_prefix(content[:200], 210, "m.gguf")
