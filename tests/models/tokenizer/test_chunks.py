from __future__ import annotations

import random
from itertools import pairwise

import pytest

from localinfer.models.tokenizer.chunks import Chunker, PairSplitter
from localinfer.models.tokenizer.merging import merge_symbols
from localinfer.models.tokenizer.spm import SPM
from localinfer.models.tokenizer.vocabulary import read_vocabulary
from tests.models.tokenizer.vocabularies import golden, spm_metadata


def test_texts_are_cut_before_spaces_and_around_punctuation():
    split = Chunker(["ab", "▁a"], {"ab", "▁a"}).split
    assert split("▁ab▁▁cd,▁e") == ["▁ab", "▁▁cd", ",", "▁e"]
    assert split("") == []
    assert split("▁▁") == ["▁▁"]


def test_parts_that_a_token_spans_stay_together():
    split = Chunker(["b▁", "a.", "x"], {"b▁"}).split
    assert split("ab▁c") == ["ab▁c"]
    assert split("a.b") == ["a.", "b"]
    assert split("ac▁c") == ["ac", "▁c"]


def test_tokens_that_merging_cannot_make_keep_nothing_together():
    # <tag> would need a part such as `<ta` or `tag>`.
    split = Chunker(["<tag>"], {"<tag>"}).split
    assert split("<tag>") == ["<", "tag", ">"]
    assert Chunker(["<tag>", "<tag"], {"<tag", "<tag>"}).split("tag>") == ["tag>"]


def test_runs_are_chunks_of_their_own():
    chunker = Chunker([">▁</"], {"▁</"})
    split = chunker.with_runs({"▁": (2, 3), "\n": (1, 2)})
    assert split("a>▁</b") == ["a", ">▁</", "b"]
    assert split("a>▁▁</b\n\n\n") == ["a", ">", "▁▁", "</", "b", "\n\n", "\n"]
    assert split("▁▁▁▁a") == ["▁▁▁", "▁a"]
    assert chunker.split("▁▁▁▁a") == ["▁▁▁▁a"]


@pytest.mark.parametrize("name", ["llama-spm", "phi-3"])
def test_a_text_in_chunks_merges_as_the_whole_does(name):
    vocabulary = read_vocabulary(golden(name)[0], {})
    spm = SPM(vocabulary)
    rng = random.Random(7)
    texts = [text for text, _ in golden(name)[1]]
    for _ in range(60):
        text = "".join(
            rng.choices([*"  \n\t.,'\"</>()[]{}=0123456789abcdefgABC", "é", "我", *texts[:12]], k=60)
        ).replace(" ", "▁")
        whole = merge_symbols(list(text), spm._merged.merger.priority, "")
        assert spm._encode_plain(text) == spm._merged.ids_of(whole)


@pytest.mark.parametrize("seed", range(20))
def test_random_vocabularies_merge_in_chunks_as_in_the_whole(seed):
    rng = random.Random(seed)
    words = list(dict.fromkeys("".join(rng.choices("ab.<▁", k=rng.randrange(1, 5))) for _ in range(60)))
    spm = SPM(read_vocabulary(spm_metadata(words, add_space_prefix=False), {}))
    for _ in range(40):
        text = "".join(rng.choices("ab.<▁", k=200))
        whole = merge_symbols(list(text), spm._merged.merger.priority, "")
        assert spm._encode_plain(text) == spm._merged.ids_of(whole)


def test_long_strings_are_cut_at_pairs_that_no_token_has():
    splitter = PairSplitter(lambda: "ab\0bcd")
    assert splitter.split("abcdab") == ["abcd", "ab"]
    assert splitter.split("x") == ["x"]
    assert PairSplitter(lambda: "ab c\0c d", " ").split("abcd") == ["a", "bcd"], "rules: b meets c, c meets d"


@pytest.mark.parametrize("between", ["", " "])
def test_many_pairs_are_read_at_once_and_say_the_same(between):
    rng = random.Random(3)
    letters = [chr(0x4E00 + i) for i in range(60)]
    joined = "\0".join(between.join(rng.choices(letters, k=2)) for _ in range(900))
    text = "".join(rng.choices(letters, k=20_000))
    expected = "".join(a + "|" * (between.join(a + b) not in joined) for a, b in pairwise(text)) + text[-1]
    assert "|".join(PairSplitter(lambda: joined, between).split(text)) == expected
