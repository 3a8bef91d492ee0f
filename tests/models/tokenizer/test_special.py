from __future__ import annotations

import random

import pytest

from localinfer.models.tokenizer.special import SpecialMatcher, SpecialToken, whole_runs


def matcher(*texts: str) -> SpecialMatcher:
    return SpecialMatcher([SpecialToken(text, i) for i, text in enumerate(texts)])


def test_texts_are_cut_at_special_tokens():
    found = matcher("<s>", "<end>")
    assert found.split("<s>hi<end><s>") == [0, "hi", 1, 0]
    assert found.split("<s") == ["<s"]
    assert found.split("") == []
    assert matcher().split("a") == ["a"]


def test_a_token_that_starts_another_gives_way_to_the_longer():
    assert matcher("<t>", "<t>x", "<t").split("<t>x<t>y<t") == [1, 0, "y", 2]


def test_longer_tokens_win_wherever_they_stand():
    # `bcd` is longer than `ab`, so `ab` is cut apart, not `bcd`.
    assert matcher("ab", "bcd").split("abcd ab") == ["a", 1, " ", 0]


def test_runs_of_newlines_take_as_many_as_they_can():
    found = matcher("\n", "\n\n", "\n\n\n", "<a>")
    assert found.split("a\n\n\n\nb\n<a>") == ["a", 2, 0, "b", 0, 3]
    assert whole_runs(["\n", "\n\n", "  ", "    ", "<a>"]) == {"\n": (1, 2)}


def test_white_space_beside_a_stripping_token_is_its_own():
    tokens = [SpecialToken("<l>", 0, strips_left=True), SpecialToken("<r>", 1, strips_right=True)]
    assert SpecialMatcher(tokens).split("a  <l> b <r> \n c") == ["a", 0, " b ", 1, "c"]


def by_rule(texts: list[str], text: str) -> list[str | int]:
    """The rule as llama.cpp states it: for each token, longest first, cut every piece that is still text."""
    pieces: list[str | int] = [text]
    for token in sorted(range(len(texts)), key=lambda i: (-len(texts[i].encode()), i)):
        cut: list[str | int] = []
        for piece in pieces:
            if isinstance(piece, int):
                cut.append(piece)
                continue
            for n, part in enumerate(piece.split(texts[token])):
                cut += [token] * (n > 0) + [part] * bool(part)
        pieces = cut
    return pieces


@pytest.mark.parametrize("seed", range(40))
def test_random_tokens_are_cut_by_the_rule(seed):
    rng = random.Random(seed)
    texts = sorted({"".join(rng.choices("ab<\n", k=rng.randrange(1, 5))) for _ in range(6)})
    found = matcher(*texts)
    for _ in range(20):
        text = "".join(rng.choices("ab<\nx", k=40))
        assert found.split(text) == by_rule(texts, text), texts
