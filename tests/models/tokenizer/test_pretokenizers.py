from __future__ import annotations

import random

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from localinfer.errors import UnsupportedModel
from localinfer.models.tokenizer.pretokenizers import GPT2, PRE_TOKENIZERS, _split_by, pre_tokenizer

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


@settings(max_examples=300, deadline=None)
@given(text=TEXT)
def test_single_digits_in_one_pattern_are_as_in_two(text):
    digits, rest = regex.compile(r"(\p{N})"), regex.compile(GPT2)
    in_two = [
        word for part in digits.split(text) for word in ([part] if digits.fullmatch(part) else rest.findall(part))
    ]
    assert words("smollm", text) == in_two


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
