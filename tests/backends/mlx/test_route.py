"""The choice of experts on the device against the reference's on the host."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.mlx.gpu_route import by_expert, one_by_one, route
from localinfer.backends.reference.ops import route as reference
from localinfer.models.config import MoEConfig

CONFIGS = [
    MoEConfig(16, 4, 8),
    MoEConfig(16, 4, 8, normalize=False, scale=2.5),
    MoEConfig(16, 1, 8, gating="sigmoid", weigh_input=True),
    MoEConfig(16, 4, 8, gating="softmax_after_topk", normalize=False),
    MoEConfig(16, 3, 8, gating="sigmoid", n_groups=4, n_groups_used=2, scale=1.5),
]


@pytest.mark.parametrize("moe", CONFIGS)
@pytest.mark.parametrize("biased", [False, True])
def test_same_experts_and_weights_as_the_reference(moe: MoEConfig, biased: bool) -> None:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((33, 16)).astype(np.float32)
    bias = rng.standard_normal(16).astype(np.float32) if biased else None
    chosen, weights = route(mx.array(logits), moe, None if bias is None else mx.array(bias))
    expected, shares = reference(logits, moe, bias)
    assert np.array_equal(np.array(chosen), expected)
    assert np.allclose(np.array(weights), shares, rtol=2e-6)


@pytest.mark.parametrize("width", [2, 4, 16])
@pytest.mark.parametrize(("n_pairs", "n_experts"), [(2, 8), (66, 8), (128, 64), (40, 1), (300, 5)])
def test_tiles_hold_every_pair_once(n_pairs: int, n_experts: int, width: int) -> None:
    chosen = np.random.default_rng(n_pairs).integers(0, max(1, n_experts - 1), n_pairs).astype(np.int32)
    by = by_expert(mx.array(chosen), n_experts, width)
    order, experts, tiles, back = (np.array(a) for a in (by.order, by.experts, by.tiles, by.back))
    assert np.array_equal(chosen[order], experts) and (np.diff(experts) >= 0).all()
    assert np.array_equal(order[back], np.arange(n_pairs))
    held = [(int(e), at) for e, first, n in tiles for at in range(first, first + n)]
    assert sorted(at for _, at in held) == list(range(n_pairs))
    assert all(experts[at] == e for e, at in held) and tiles[:, 2].max() <= width
    assert (tiles[:, 0] >= 0).all() and (tiles[:, 0] < n_experts).all()


def test_the_pairs_of_one_token_keep_their_places() -> None:
    by = one_by_one(mx.array([5, 0, 7], mx.int32))
    assert np.array(by.tiles).tolist() == [[5, 0, 1], [0, 1, 1], [7, 2, 1]] and np.array(by.back).tolist() == [0, 1, 2]
