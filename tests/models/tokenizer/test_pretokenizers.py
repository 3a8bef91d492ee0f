from __future__ import annotations

import random

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from localinfer.errors import UnsupportedModel
from localinfer.models.tokenizer.pretokenizers import (
    GPT2,
    GPT4O,
    PRE_TOKENIZERS,
    _llama3,
    _split_by,
    pre_tokenizer,
)

TEXT = st.text(
    alphabet=st.one_of(st.sampled_from("ab Z'sStLl09.,!?$+<\n\r\t \u3000éßП我한्́"), st.characters(codec="utf-8")),
    max_size=40,
)


def words(name: str, text: str) -> list[str]:
    return pre_tokenizer(name).splitter()(text)


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
@settings(max_examples=12, deadline=None)
@given(text=TEXT)
def test_words_joined_give_the_text(name, text):
    assert "".join(words(name, text)) == text
    assert all(words(name, text))


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_ascii_texts_are_cut_as_others(name):
    """`re` against `regex`: an ASCII text alone, and as the beginning of one that is not."""
    rng = random.Random(5)
    mostly = [*"ab Z'sStLl09.,!?$+<\n\r\t ~^`|_-/[](){}<sentinel:1>IMGIMGAZ'", *map(chr, range(128))]
    any_text = _split_by(pre_tokenizer(name).patterns, regex.compile)
    for _ in range(150):
        text = "".join(rng.choices(mostly, k=rng.randrange(1, 40)))
        assert words(name, text) == any_text(text), repr(text)
        assert words(name, text + "é") == any_text(text + "é")


# The rules of the models' own tokenizer.json, one after the other, where the table has one pattern for them.
NUMBERS, THREES = r"\p{N}{1,3}", r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
PUNCTUATION = r"[\p{P}$+<=>^~|]+"
CJK = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
RULES = {
    "smollm": (r"\p{N}", GPT2),
    "falcon": (PUNCTUATION.replace("|", "|`"), GPT2, "[0-9][0-9][0-9]"),
    "default": (PUNCTUATION, GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "minicpm5": (NUMBERS, _llama3(r"\p{N}+")),
    "tiny_aya": (THREES, GPT4O),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"),
    "deepseek-v3": pre_tokenizer("deepseek-v3").patterns,
    "afmoe": pre_tokenizer("afmoe").patterns,
}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=300, deadline=None)
@given(text=TEXT)
def test_one_pattern_cuts_as_its_rules(name, text):
    assert words(name, text) == _split_by(RULES[name], regex.compile)(text)


@pytest.mark.parametrize("name", RULES)
def test_one_pattern_cuts_as_its_rules_in_runs(name):
    """Long runs of few characters, where rules meet most often."""
    rng = random.Random(7)
    by_rules = _split_by(RULES[name], regex.compile)
    for _ in range(1500):
        few = rng.choices("ab1 2\n\t$.,'`+\r\x00\x0b\u0301é１½\u3000中あ・\u200b👍", k=rng.randrange(2, 6))
        text = "".join(rng.choices(few, k=rng.randrange(1, 30)))
        assert words(name, text) == by_rules(text), repr(text)


@pytest.mark.parametrize("name", sorted(name for name, pre in PRE_TOKENIZERS.items() if not pre.joins_words))
def test_a_long_text_is_cut_as_if_at_once(name):
    """In blocks, where some are ASCII, some are not, and some have rare characters."""
    rng = random.Random(9)
    some = [
        "word",
        " word",
        " Up",
        "'s",
        " 12345",
        "\n",
        "  ",
        ".",
        " é",
        "中",
        "・",
        " \u0301x",
        "\t",
        "IMGIMGAZ",
        "\x00",
    ]
    text = "".join(
        part for k in (3, 8, 15, 8, 3) for part in [*rng.choices(some[:k], k=400), *rng.choices(some[:3], k=300)]
    )
    assert words(name, text) == _split_by(pre_tokenizer(name).patterns, regex.compile)(text)


@pytest.mark.parametrize("n", [599, 600, 601, 1000, 20_000])
def test_a_very_long_number_is_cut_in_threes_from_the_right(n):
    found = words("tiny_aya", "x" + "7" * n + " y")
    assert found[0] == "x" and found[-1] == " y" and len(found[1]) == (n - 1) % 3 + 1
    assert {len(word) for word in found[2:-1]} == {3}


# What the models' own tokenizers give, by hand from their published rules.
@pytest.mark.parametrize(("name", "text", "expected"), [
    ("gpt-2", "I'll be  at 10:45\n\nok", ["I", "'ll", " be", " ", " at", " 10", ":", "45", "\n", "\n", "ok"]),
    ("llama-bpe", "I'LL pay 12345\n\n  now", ["I", "'LL", " pay", " ", "123", "45", "\n\n", " ", " now"]),
    ("qwen2", "x=42;\n", ["x", "=", "4", "2", ";\n"]),
    ("smollm", "a 42  7", ["a", " ", "4", "2", "  ", "7"]),
    ("qwen35", "कि a\u0301b", ["कि", " a\u0301b"]),
    ("gpt-4o", "HelloWorld's/", ["Hello", "World's", "/"]),
    ("tekken", "HELLOWorld 12", ["HELLOWorld", " ", "1", "2"]),
    ("deepseek-v3", "数字1234 和", ["数字", "123", "4", " ", "和"]),
    ("kimi-k2", "数字abc", ["数字", "abc"]),
    ("tiny_aya", "1234567", ["1", "234", "567"]),
    ("falcon", "12345", ["123", "45"]),
    ("default", "ab12345.", ["ab", "123", "45", "."]),
    ("gemma4", "a b\n\nc", ["a b", "\n\n", "c"]),
])  # fmt: skip
def test_how_families_cut(name, text, expected):
    assert words(name, text) == expected


def test_an_unknown_name_is_refused():
    with pytest.raises(UnsupportedModel) as found:
        pre_tokenizer("qwen9")
    assert "'qwen9'" in found.value.message and found.value.exit_code == 5
