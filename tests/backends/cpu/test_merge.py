"""The compiled merging against models/tokenizer/merging.py's."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from localinfer.backends.cpu.lib import library_path
from localinfer.backends.cpu.merge import open_merge_table
from localinfer.models.tokenizer import Tokenizer
from localinfer.models.tokenizer.merging import Merger, merge_symbols
from tests.models.tokenizer.vocabularies import NAMES, FakeFile, golden

needs_kernels = pytest.mark.skipif(library_path() is None, reason="the C kernels are not built")


def merged(priority: dict[str, float], between: str, words: list[str]) -> list[list[str]]:
    table = open_merge_table(list(priority), list(priority.values()), between)
    assert table is not None
    found = table("\0".join(words))
    assert found is not None
    return [word.split("\1") for word in found.split("\0")]


@needs_kernels
@pytest.mark.parametrize("between", ["", " "])
def test_merges_as_python_does(between):
    """Random rules over few characters, of one to four bytes, with many ties."""
    rng = random.Random(3)
    alphabet = "abcé中🙂"
    for _ in range(60):
        parts = ["".join(rng.choices(alphabet, k=rng.randrange(1, 4))) for _ in range(60)]
        priority = {f"{a}{between}{b}": float(rng.randrange(20)) for a, b in pairwise(parts)}
        words = ["".join(rng.choices(alphabet, k=rng.randrange(0, 40))) for _ in range(40)]
        expected = [merge_symbols(list(word), priority, between) or [""] for word in words]
        assert merged(priority, between, words) == expected


@needs_kernels
def test_of_a_repeated_rule_the_first_counts_and_places_are_priorities():
    table = open_merge_table(["b c", "a b", "b c"], None, " ")
    assert table is not None and table("abc\0ab") == "a\1bc\0ab"


@needs_kernels
def test_a_word_that_is_too_long_is_left_to_python():
    table = open_merge_table(["aa"], None, "")
    assert table is not None and table("a" * 512) == "\1".join(["aa"] * 256)
    assert table("a" * 513) is None
    merger = Merger({"aa": 0.0}, "", open_merge_table)
    assert list(merger.symbols_of(["a" * 513])) == [["aa"] * 256 + ["a"]]


@needs_kernels
def test_keys_with_the_separator_are_refused():
    assert open_merge_table(["a\0b", "c"], None, "") is None
    merger = Merger({"a\0": 0.0, "bc": 1.0}, "", open_merge_table)
    assert list(merger.symbols_of(["a\0", "bcb", "\1"])) == [["a\0"], ["bc", "b"], ["\1"]]


@needs_kernels
@pytest.mark.parametrize("name", NAMES)
def test_long_texts_have_the_same_ids_with_and_without(name):
    """Each vocabulary's test strings, shuffled into one text with many new words."""
    metadata, cases = golden(name)
    rng = random.Random(1)
    parts = [text for text, _ in cases]
    n_parts = 9_000 + len(metadata.get("tokenizer.ggml.merges", ())) // 20  # a table pays off from so many words on
    parts += ["".join(rng.choices("etaoinshr dlu.,\n中é", k=rng.randrange(1, 12))) for _ in range(n_parts)]
    rng.shuffle(parts)
    text = "".join(parts)
    tables = []

    def open_table(*arguments):
        tables.append(open_merge_table(*arguments))
        return tables[-1]

    assert Tokenizer.from_gguf(FakeFile(metadata), open_table).encode(text) == Tokenizer.from_gguf(
        FakeFile(metadata)
    ).encode(text)
    assert len(tables) == 1 and tables[0] is not None, "the table was used"
