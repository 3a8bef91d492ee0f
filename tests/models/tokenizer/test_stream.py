from __future__ import annotations

from localinfer.models.tokenizer import Tokenizer
from tests.models.tokenizer.vocabularies import FakeFile, bpe_metadata, spm_metadata, tokenizer


def byte_tokens(text: str) -> tuple[Tokenizer, list[int]]:
    tok = Tokenizer.from_gguf(FakeFile(bpe_metadata(["a b"])))
    return tok, tok.encode(text)


def test_half_a_character_waits():
    tok, ids = byte_tokens("é👍x")
    stream = tok.stream()
    assert [stream.push(i) for i in ids] == ["", "é", "", "", "", "👍", "x"]
    assert stream.flush() == ""


def test_what_never_becomes_a_character_is_replaced():
    tok, ids = byte_tokens("é👍")
    stream = tok.stream()
    assert stream.push(ids[0]) + stream.push(ids[2]) == "\ufffd"
    assert stream.flush() == "\ufffd"


def test_refused_tokens_are_taken_back():
    tok, ids = byte_tokens("👍👎")
    stream = tok.stream()
    for i in ids[:2]:
        assert stream.push(i) == ""
    before = stream.state()
    assert stream.push(ids[2]) + stream.push(ids[3]) == "👍"
    assert stream.push(ids[4]) == ""
    stream.restore(before)
    assert stream.push(ids[2]) + stream.push(ids[7]) == "👎"[:0] + bytes([0xF0, 0x9F, 0x91, 0x8E]).decode()


def test_the_space_after_a_special_token_is_taken_back_with_it():
    tok = Tokenizer.from_gguf(FakeFile(spm_metadata(["▁", "a", "▁a"])))
    stream = tok.stream()
    space_a = tok.encode("a", add_special=False)[0]
    before = stream.state()
    assert stream.push(2) + stream.push(space_a) == "</s>a"
    stream.restore(before)
    assert stream.push(space_a) == " a"


def test_control_tokens_can_be_hidden():
    tok = tokenizer("qwen2")
    ids = tok.encode("a<|im_end|>b", add_special=False)
    shown, hidden = tok.stream(), tok.stream(skip_special=True)
    assert "".join(map(shown.push, ids)) == "a<|im_end|>b"
    assert "".join(map(hidden.push, ids)) == "ab"
