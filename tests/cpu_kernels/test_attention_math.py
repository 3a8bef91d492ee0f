"""exp and tanh as attention uses them, seen from outside: through softmax weights and the softcap."""

from __future__ import annotations

import numpy as np

from tests.cpu_kernels.attention_kernels import Shape, Store, levels, library


def two_keys(scores: np.ndarray, softcap: float = 0.0) -> np.ndarray:
    """Weight of the second of two keys whose scores are 0 and x: exp(x) / (1 + exp(x)), for each x."""
    shape = Shape(1, 1, 1, 1, scale=1.0, softcap=softcap)
    out = np.empty(len(scores), np.float32)
    store = Store(shape, 2)
    ones = np.ones((1, 1, 1), np.float32)
    for i, x in enumerate(scores):
        store.run(0, ones, 0 * ones, 0 * ones)
        out[i] = store.run(1, ones, np.float32(x) * ones, ones)[0, 0, 0]
    return out


def test_exp_over_its_range_on_every_instruction_set() -> None:
    x = np.concatenate([np.linspace(-87, 20, 300), [-1e-6, -0.34657, -0.3466, -88, -1e4]]).astype(np.float32)
    exact = np.exp(np.minimum(x, 0.0).astype(np.float64)) / (1 + np.exp(-np.abs(x.astype(np.float64))))
    for name in levels():
        assert library().li_cpu_select(name.encode()) == 0
        found = two_keys(x)
        normal = exact > 1.2e-38
        assert (np.abs(found[normal] / exact[normal] - 1) < 4e-7).all()
        assert (found[~normal] == 0).all()
    library().li_cpu_select(None)


def test_tanh_of_small_and_large_scores() -> None:
    x = np.concatenate([np.linspace(-30, 0, 150), [-1e-3, -3.1, -3.2, -1e30]]).astype(np.float32)
    for name in levels():
        assert library().li_cpu_select(name.encode()) == 0
        capped = 5.0 * np.tanh(x.astype(np.float64) / 5.0)
        exact = np.exp(capped) / (1 + np.exp(capped))
        assert (np.abs(two_keys(x, softcap=5.0) / exact - 1) < 2e-6).all()
    library().li_cpu_select(None)
