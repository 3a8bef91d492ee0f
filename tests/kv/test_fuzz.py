"""Random lives of a cache against a model of what it must contain (paper.py): no leak, no aliasing, nothing stale.

LOCALINFER_TEST_FUZZ=10000 runs that many sequences; a few hundred otherwise.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.kv.paper import Paper, spec

SEQUENCES = int(os.environ.get("LOCALINFER_TEST_FUZZ", "300"))
SHAPES = {
    "full": {"windows": (0,)},
    "window beside full": {"windows": (0, 20)},
    "two windows": {"windows": (0, 16, 40)},
    "windows only": {"windows": (24,)},
    "state only": {"windows": (), "state": True},
    "state beside full": {"windows": (0,), "state": True},
    "everything": {"windows": (0, 24), "state": True},
    "no room for checkpoints": {"windows": (0, 24), "checkpoints": 0},
}


def one_life(shape: str, seed: int) -> int:
    """Extend, truncate, fork, mark, evict, free; how many tokens were found again."""
    rng = random.Random(f"{shape} {seed}")
    n_ctx, chunk = rng.choice([(48, 8), (100, 16), (160, 5)])
    paper = Paper(spec(n_ctx, chunk, **SHAPES[shape]))
    past: list[list[int]] = [[]]
    found = 0
    for _ in range(rng.randint(5, 40)):
        room = n_ctx - len(paper.tokens)
        act = rng.random()
        if act < 0.5 and room:
            paper.extend([rng.randrange(3) for _ in range(rng.randint(1, min(room, chunk)))])
        elif act < 0.6:
            paper.truncate(rng.randint(0, len(paper.tokens)))
        elif act < 0.85:
            past.append(list(paper.tokens))
            old = rng.choice(past)
            ids = old[: rng.randint(0, len(old))] + [rng.randrange(3) for _ in range(rng.randint(0, 20))]
            found += paper.switch(ids[:n_ctx])
        elif act < 0.93:
            paper.mark()
        elif act < 0.98 and paper.cache.classes:
            paper.cache.evict(rng.randrange(len(paper.cache.classes)))
            paper.check()
        elif act > 0.99:
            paper.clear()
    paper.clear()
    assert all(pool.in_use == 0 for pool in (*paper.cache.pools, paper.cache.states))
    assert not list(paper.cache.tree.nodes())
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_lives(shape):
    found = sum(one_life(shape, seed) for seed in range(SEQUENCES // len(SHAPES)))
    assert found > SEQUENCES // len(SHAPES)
