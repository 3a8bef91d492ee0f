from __future__ import annotations

import itertools
import random
import struct

import pytest

from localinfer.errors import FormatError
from localinfer.models.tokenizer import Tokenizer
from localinfer.models.tokenizer.charsmap import CharsMap
from tests.models.tokenizer.vocabularies import FakeFile


def unigram(words: dict[str, float], **extra) -> Tokenizer:
    tokens = ["<pad>", "</s>", "<unk>", *words]
    found = {"model": "t5", "tokens": tokens, "scores": [0.0, 0.0, 0.0, *words.values()]}
    found |= {
        "token_type": [3, 3, 2, *[1] * len(words)],
        "eos_token_id": 1,
        "unknown_token_id": 2,
        "padding_token_id": 0,
    }
    return Tokenizer.from_gguf(FakeFile({f"tokenizer.ggml.{k}": v for k, v in {**found, **extra}.items()}))


def test_the_best_sum_of_scores_wins():
    tok = unigram({"a": -1.0, "b": -1.0, "ab": -1.5, "abc": -9.0, "c": -1.0}, add_space_prefix=False)
    assert tok.encode("abc") == [5, 7, 1]


def test_every_segmentation_was_considered():
    rng = random.Random(3)
    words = {
        "".join(w): -float(rng.randrange(1, 90)) / 8 for n in (1, 2, 3) for w in itertools.product("ab▁", repeat=n)
    }
    for text in list(words):
        if len(text) > 1 and rng.random() < 0.5:
            del words[text]
    tok = unigram(words)
    scores = dict(words)
    for _ in range(30):
        text = "".join(rng.choices("ab ", k=9))
        ids = tok.encode(text, add_special=False)
        pieces = [tok._vocabulary.tokens[i] for i in ids]
        assert "".join(pieces) == text.replace(" ", "▁")
        best = {0: 0.0}
        for end in range(1, len(text) + 1):
            part = text.replace(" ", "▁")
            options = [best[s] + scores[part[s:end]] for s in range(end) if part[s:end] in scores]
            best[end] = max(options)
        assert sum(scores[p] for p in pieces) == best[len(text)]


def test_unknown_characters_become_one_unknown_token():
    tok = unigram({"▁": -2.0, "a": -1.0, "▁a": -1.0}, add_space_prefix=True)
    assert tok.encode("a??a", add_special=False) == [5, 2, 4]


def test_white_space_is_merged_where_the_file_says():
    tok = unigram({"▁": -3.0, "▁a": -1.0, "a": -2.0}, add_space_prefix=True, remove_extra_whitespaces=True)
    assert tok.encode("  a   a ") == [4, 4, 1]
    assert tok.decode(tok.encode("a a", add_special=False)) == "a a"


def charsmap(mapping: dict[bytes, bytes]) -> bytes:
    """A double array with one byte keys: node 0, children at base ^ byte, leaf values at child ^ its base."""
    units = [0] * 1024
    units[0] = 256 << 10  # the root's base
    replacements = b""
    for n, (key, value) in enumerate(mapping.items()):
        child, leaf = 256 ^ key[0], 512 + n
        units[child] = (child ^ leaf) << 10 | 1 << 8 | key[0]
        units[leaf] = 1 << 31 | len(replacements)
        replacements += value + b"\0"
    return struct.pack("<I1024I", 4096, *units) + replacements


def test_the_character_map_is_applied():
    tok = unigram({"a": -1.0, "b": -1.0}, precompiled_charsmap=list(charsmap({b"A": b"a", b"B": b"bb"})))
    assert [tok.piece(i) for i in tok.encode("ABab", add_special=False)] == ["a", "b", "b", "a", "b"]


@pytest.mark.parametrize("blob", [b"", b"\1\0", struct.pack("<I", 4096) + b"\0" * 8, charsmap({b"A": b"a"})[:-1]])
def test_an_unsound_character_map_is_named(blob):
    with pytest.raises(FormatError) as found:
        CharsMap(blob).longest_prefix(b"A", 0)
    assert "precompiled_charsmap" in found.value.message
