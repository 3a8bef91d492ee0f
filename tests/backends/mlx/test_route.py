"""The choice of experts on the device against the reference's on the host."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.mlx.gpu_route import route
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
