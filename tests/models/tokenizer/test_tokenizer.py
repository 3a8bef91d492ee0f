from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from localinfer.errors import FormatError, UnsupportedModel
from localinfer.models.tokenizer import Tokenizer
from tests.models.tokenizer.vocabularies import (
    GOLDEN,
    NAMES,
    FakeFile,
    bpe_metadata,
    golden,
    spelled_bytes,
    spm_metadata,
    tokenizer,
)

# Every kind of boundary: scripts, marks, digits, spaces, newlines, specials, emoji with joiners.
TEXT = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            [
                "  ",
                "\n\n",
                " \t",
                "'ll",
                "'S",
                "1234",
                "▁",
                "▁▁",
                "naïve",
                "कि",
                "한국",
                "我想",
                "👩‍👩‍👧",
                "</s>",
                "<s>",
                "</",
            ]
        ),
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("name", NAMES)
def test_ids_equal_those_of_the_original_tokenizer(name):
    tok = tokenizer(name)
    cases = golden(name)[1]
    assert cases
    # Some vocabularies' checks were made with special tokens parsed; none of the texts holds one.
    for text, ids in cases:
        assert tok.encode(text, add_special=False) == ids, text
        assert tok.decode(ids) == text


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXT)
def test_any_text_comes_back(name, text):
    tok = tokenizer(name)
    text = text.encode("utf-8", "ignore").decode()
    # Falcon's vocabulary lacks a few bytes that no text in use has.
    assume(spelled_bytes(name) >= set(text.encode()))
    ids = tok.encode(text, add_special=False, parse_special=False)
    # Llama's vocabularies cannot tell `▁` from a space.
    assert tok.decode(ids) == (text if tok._rules.byte_encoded else text.replace("▁", " "))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXT)
def test_streaming_gives_what_decoding_gives(name, text):
    tok = tokenizer(name)
    ids = tok.encode(text, add_special=False)
    stream = tok.stream(at_start=True)
    parts = [stream.push(i) for i in ids]
    assert "".join(parts) + stream.flush() == tok.decode(ids)


def test_bos_and_eos_are_added_as_the_file_says():
    plain = spm_metadata(["a"])
    assert Tokenizer.from_gguf(FakeFile(plain)).encode("")[:1] == [1]
    both = spm_metadata(["a"], add_eos_token=True, add_bos_token=False, add_space_prefix=False)
    tok = Tokenizer.from_gguf(FakeFile(both))
    assert tok.encode("a") == [259, 2]
    assert tok.encode("a", add_special=False) == [259]
    assert (tok.add_bos, tok.add_eos) == (False, True)


def test_control_tokens_are_parsed_only_when_asked():
    tok = tokenizer("llama-bpe")
    eot = tok.encode("<|eot_id|>", add_special=False)
    assert len(eot) == 1 and eot[0] in tok.special_ids and eot[0] in tok.eog_ids
    spelled = tok.encode("<|eot_id|>", add_special=False, parse_special=False)
    assert len(spelled) > 1 and tok.decode(spelled) == "<|eot_id|>"
    assert tok.decode([*spelled, *eot], skip_special=True) == "<|eot_id|>"


def test_user_defined_tokens_are_always_parsed():
    tok = Tokenizer.from_gguf(FakeFile(bpe_metadata(["a b"], {"<tool>": 4, "<|end|>": 3})))
    assert tok.encode("ab<tool>", parse_special=False) == [256, 257]
    assert tok.decode([257, 258], skip_special=True) == "<tool>"


def test_llama_puts_a_space_after_special_tokens_and_takes_it_back():
    tok = Tokenizer.from_gguf(FakeFile(spm_metadata(["▁", "a", "b", "▁a", "▁b"])))
    ids = tok.encode("a</s>b")
    assert [tok.piece(i) for i in ids] == ["<s>", " a", "</s>", " b"]
    assert tok.decode(ids[1:]) == "a</s>b"
    # What goes on after other text keeps its space.
    assert tok.stream().push(ids[1]) == " a"


def test_a_whole_word_that_is_a_token_is_not_merged_where_merges_are_ignored():
    merges = ["a b", "c d"]
    words = bpe_metadata(merges, {"abcd": 1}, pre="llama-bpe")
    assert Tokenizer.from_gguf(FakeFile(words)).encode("abcd", add_special=False) == [258]
    merged = bpe_metadata(merges, {"abcd": 1}, pre="gpt-2")
    assert Tokenizer.from_gguf(FakeFile(merged)).encode("abcd") == [256, 257]


def test_characters_without_a_token_become_bytes():
    tok = Tokenizer.from_gguf(FakeFile(spm_metadata(["a"], add_space_prefix=False)))
    ids = tok.encode("aé", add_special=False)
    assert [tok.token_bytes(i) for i in ids] == [b"a", b"\xc3", b"\xa9"]
    assert tok.decode(ids) == "aé"


def test_lone_surrogates_become_replacement_characters():
    tok = tokenizer("gpt-2")
    assert tok.decode(tok.encode("a\udcffb")) == "a\ufffdb"


@pytest.mark.parametrize(("name", "texts"), [
    ("llama-bpe", {"<|end_of_text|>", "<|eot_id|>"}),
    ("qwen2", {"<|endoftext|>", "<|im_end|>"}),
    ("phi-3", {"<|endoftext|>", "<|end|>", "</s>"}),
    ("llama-spm", {"</s>"}),
])  # fmt: skip
def test_what_ends_a_generation(name, texts):
    tok = tokenizer(name)
    assert texts <= {tok.piece(i) for i in tok.eog_ids}


def test_a_message_end_is_no_end_of_generation_where_answers_have_several_messages():
    special = {"<|return|>": 3, "<|call|>": 3, "<|end|>": 3, "<|channel|>": 3}
    metadata = bpe_metadata(["a b"], special, eos_token_id=257)
    tok = Tokenizer.from_gguf(FakeFile(metadata))
    assert {tok.piece(i) for i in tok.eog_ids} == {"<|return|>", "<|call|>"}
    assert tok.decode([259, 260], skip_special=True) == "<|end|><|channel|>"


@pytest.mark.parametrize(("change", "error", "part"), [
    ({"pre": "martian-9"}, UnsupportedModel, "'martian-9'"),
    ({"model": "rwkv"}, UnsupportedModel, "'rwkv'"),
    ({"model": None}, FormatError, "tokenizer.ggml.model"),
    ({"model": 7}, FormatError, "tokenizer.ggml.model"),
    ({"merges": None}, FormatError, "tokenizer.ggml.merges"),
    ({"merges": [1]}, FormatError, "tokenizer.ggml.merges"),
    ({"tokens": None}, FormatError, "tokenizer.ggml.tokens"),
    ({"tokens": []}, FormatError, "tokenizer.ggml.tokens"),
    ({"tokens": [1, 2]}, FormatError, "tokenizer.ggml.tokens"),
    ({"token_type": [1]}, FormatError, "tokenizer.ggml.token_type"),
    ({"token_type": "x"}, FormatError, "tokenizer.ggml.token_type"),
    ({"bos_token_id": "x"}, FormatError, "tokenizer.ggml.bos_token_id"),
    ({"add_bos_token": 3}, FormatError, "tokenizer.ggml.add_bos_token"),
])  # fmt: skip
def test_what_cannot_be_read_is_named(change, error, part):
    metadata = bpe_metadata(["a b"])
    for key, value in change.items():
        metadata[f"tokenizer.ggml.{key}"] = value
        if value is None:
            del metadata[f"tokenizer.ggml.{key}"]
    with pytest.raises(error) as found:
        Tokenizer.from_gguf(FakeFile(metadata))
    assert part in found.value.message
    assert "\n" not in found.value.message


def test_a_special_id_out_of_range_is_ignored_and_said():
    tok = Tokenizer.from_gguf(FakeFile(bpe_metadata(["a b"], eos_token_id=999)))
    assert tok.eos_id is None
    assert "eos_token_id = 999" in tok.notices[0]


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "llama-bpe"])
def test_a_long_text_without_spaces_takes_time_in_proportion(name):
    tok = tokenizer(name)
    letters = "".join(chr(97 + (i * i * 7 + i // 5) % 26) for i in range(80_000))

    def seconds(text: str) -> float:
        start = time.process_time()
        tok.encode(text, add_special=False)
        return time.process_time() - start

    short = min(seconds(letters[:20_000]) for _ in range(2))
    assert seconds(letters) < 4 * 3 * short + 0.2
    assert tok.decode(tok.encode(letters, add_special=False)) == letters


@pytest.mark.parametrize("part", ["\n", "<", "</s", " ", "a", "</s><s>"])
@pytest.mark.parametrize("name", ["phi-3", "tiny-gemma3", "qwen2"])
def test_monotonous_texts_do_not_hang(name, part):
    tok = tokenizer(name)
    text = part * 30_000
    start = time.process_time()
    ids = tok.encode(text, add_special=False)
    assert time.process_time() - start < 5
    assert ids


@pytest.mark.model
@pytest.mark.parametrize("model", sorted(json.loads((GOLDEN / "real_models.json").read_text())))
def test_real_models_give_the_ids_of_the_oracle(model):
    folder = os.environ.get("LOCALINFER_TEST_MODELS")
    if not folder or not (Path(folder) / model).exists():
        pytest.skip(f"LOCALINFER_TEST_MODELS names no folder with {model}")
    from localinfer.formats.gguf import GGUFFile

    tok = Tokenizer.from_gguf(GGUFFile.open(Path(folder) / model))
    for prompt, ids in json.loads((GOLDEN / "real_models.json").read_text())[model]:
        assert tok.encode(prompt) == ids
