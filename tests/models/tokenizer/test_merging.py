from __future__ import annotations

import random

import pytest

from localinfer.models.tokenizer.merging import _merge_scanning, _merge_with_heap, merge_symbols


def test_the_best_pair_merges_first_and_the_leftmost_of_equals():
    assert merge_symbols(list("aaa"), {"aa": 1.0}, "") == ["aa", "a"]
    assert merge_symbols(list("abc"), {"ab": 2.0, "bc": 1.0}, "") == ["a", "bc"]
    assert merge_symbols(list("abc"), {"a b": 2, "ab c": 1}, " ") == ["abc"]
    assert merge_symbols([], {}, "") == []


@pytest.mark.parametrize("seed", range(30))
def test_heap_and_scan_agree(seed):
    rng = random.Random(seed)
    letters = "abc"
    texts = {"".join(rng.choices(letters, k=rng.randrange(2, 6))) for _ in range(40)}
    # Few distinct numbers: many ties.
    priority = {text: float(rng.randrange(6)) for text in texts}
    symbols = rng.choices(letters, k=300)
    assert _merge_with_heap(list(symbols), priority, "") == _merge_scanning(list(symbols), priority, "")
