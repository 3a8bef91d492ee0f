"""What timelines share, what is copied, what is let go."""

from __future__ import annotations

import pytest

from localinfer.kv.prefix import worth
from tests.kv.paper import Paper, spec


def fill(paper: Paper, n: int, start: int = 0) -> list[int]:
    """Extend by n tokens that occur nowhere else, a chunk at a time."""
    while n:
        step = min(n, paper.spec.chunk)
        paper.extend(range(start, start + step))
        start, n = start + step, n - step
    return list(paper.tokens)


def test_four_branches_of_a_prefix_hold_131_pages_and_not_416():
    paper = Paper(spec(4096, 512))
    prefix = fill(paper, 1520)
    for branch in range(4):
        assert paper.switch(prefix) == 1520
        fill(paper, 144, start=10_000 * (1 + branch))
    (pool,) = paper.cache.pools
    assert pool.in_use == 95 + 4 * 9 == 131


def test_a_shared_tail_is_copied_when_one_writes_on():
    paper = Paper(spec(256, 64))
    prefix = fill(paper, 40)
    fill(paper, 30, start=1000)
    assert paper.switch(prefix) == 40  # in the middle of the third page
    fill(paper, 5, start=2000)
    assert paper.cache.pools[0].in_use == 5 + 1  # 70 tokens, and a third page of its own


def test_growing_takes_pages_from_what_is_worth_least():
    """Two old branches, one of which was asked for again; the context then fills up."""
    paper = Paper(spec(160, 16))
    prefix = fill(paper, 16)
    often, seldom = [*prefix, *range(100, 132)], [*prefix, *range(200, 232)]
    for ids in (often, seldom):
        paper.switch(ids)
        fill(paper, 32, start=ids[16])
    for _ in range(2):
        paper.switch(often)
        paper.switch(prefix)
    fill(paper, 96, start=500)  # ten pages there are: 7 of this one, 2 of one branch
    assert paper.switch(often) == 48
    paper.switch(prefix)
    assert paper.switch(seldom) < 48
    fill(paper, 160 - len(paper.tokens), start=900)
    assert len(paper.tokens) == 160


def test_the_whole_context_can_be_filled_next_to_kept_branches():
    paper = Paper(spec(256, 16, windows=(0, 20), state=True))
    for turn in range(12):
        paper.mark()
        paper.switch(paper.tokens[: 10 * turn])
        fill(paper, 256 - len(paper.tokens), start=1000 * turn)
    assert len(paper.tokens) == 256


@pytest.mark.parametrize("windows", [(32,), (0, 32)])
def test_a_window_goes_back_to_a_marked_length_and_to_the_token_before(windows):
    paper = Paper(spec(1024, 16, windows))
    fill(paper, 200)
    paper.mark()
    ids = fill(paper, 300, start=1000)
    assert paper.switch(ids[:199]) == 199
    fill(paper, 100, start=5000)
    assert paper.switch(ids[:200]) == 200


def test_state_goes_back_to_a_marked_length_only():
    paper = Paper(spec(1024, 16, (0,), state=True))
    fill(paper, 200)
    paper.mark()
    ids = fill(paper, 300, start=1000)
    assert paper.switch(ids[:250]) == 200
    assert paper.cache.shared == 250  # where a mark would have served
    fill(paper, 20, start=7000)
    assert paper.switch(ids) == 500  # leaving it kept the state of its end


def test_without_room_for_checkpoints_nothing_is_kept_of_states():
    paper = Paper(spec(1024, 16, (0,), state=True, checkpoints=0))
    ids = fill(paper, 100)
    paper.mark()
    assert paper.switch(ids[:50]) == 0


def test_clear_lets_go_of_everything():
    paper = Paper(spec(256, 16, (0, 20), state=True))
    ids = fill(paper, 200)
    paper.mark()
    paper.switch(ids[:100])
    paper.clear()
    assert [pool.in_use for pool in (*paper.cache.pools, paper.cache.states)] == [0, 0, 0]
    assert paper.switch(ids) == 0


def test_worth_is_probability_times_recomputing_by_byte():
    base = worth(16, 100, hits=0, age=0, n_bytes=1000)
    assert worth(32, 100, 0, 0, 1000) == 2 * base
    assert worth(16, 100, 0, 0, 2000) == base / 2
    assert worth(16, 100, 0, 8, 1000) == base / 2
    assert worth(16, 100, 1, 0, 1000) > base
    assert worth(16, 8000, 0, 0, 1000) > 2 * base  # deep tokens attend to more
