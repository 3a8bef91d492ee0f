"""The sampler against a slow, obvious one; its random stream; its penalties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localinfer.engine.params import SamplingParams
from localinfer.engine.random_stream import uniform
from localinfer.engine.sampler import Sampler, candidates, draw, largest
from localinfer.errors import UsageError


def plain_candidates(logits, top_k, top_p, min_p):
    """Sort everything, then cut, step by step as the module says."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if top_k:
        order = order[:top_k]
    p = np.exp(np.array([logits[i] for i in order], np.float64) - logits.max())
    if top_p < 1:
        n = int(np.searchsorted(np.cumsum(p), top_p * p.sum())) + 1
        order, p = order[:n], p[:n]
    keep = max(1, int((p >= min_p * p[0]).sum()))
    return order[:keep]


@settings(deadline=None)
@given(
    st.integers(1, 3000),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 3, 40, 5000]),
    st.sampled_from([1.0, 0.95, 0.5, 0.0]),
    st.sampled_from([0.0, 0.05, 0.9]),
    st.sampled_from([0.1, 1.0, 6.0]),
)
def test_cuts_like_the_obvious_way(n, seed, top_k, top_p, min_p, scale):
    logits = (np.random.default_rng(seed).standard_normal(n) * scale).astype(np.float32)
    ids, kept = candidates(logits, top_k, top_p, min_p)
    expected = plain_candidates(logits, top_k, top_p, min_p)
    # a sum in float32 may put a token at the very border on the other side of it
    assert abs(len(ids) - len(expected)) <= (0 < top_p < 1)
    both = min(len(ids), len(expected))
    if len(ids) == n:
        assert sorted(ids) == sorted(expected[:n])
    else:
        assert list(ids[:both]) == expected[:both]
    assert (kept == logits[ids]).all()


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("scale", [0.01, 1.0, 3.0])
def test_top_p_of_a_large_vocabulary_holds_the_smallest_sufficient_set(top_p, scale):
    logits = (np.random.default_rng(7).standard_normal(50_000) * scale).astype(np.float32)
    ids, kept = candidates(logits, 0, top_p, 0.0)
    p = np.exp(logits.astype(np.float64) - logits.max())
    p /= p.sum()
    assert (np.diff(kept) <= 0).all() and len(set(ids.tolist())) == len(ids)
    assert kept[-1] >= np.delete(logits, ids).max()
    assert p[ids].sum() >= top_p - 1e-5 > p[ids].sum() - 2 * p[ids[-1]] - 1e-5


def test_equal_logits_are_taken_by_lowest_id():
    logits = np.zeros(1000, np.float32)
    logits[[900, 20, 500]] = 1.0
    assert list(largest(logits, 5)) == [20, 500, 900, 0, 1]
    assert Sampler(SamplingParams(temperature=0)).sample(logits, 0) == 20


def test_greedy_ignores_the_seed():
    logits = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    tokens = {Sampler(SamplingParams(temperature=0, seed=s)).sample(logits, s) for s in range(20)}
    assert tokens == {int(logits.argmax())}


@pytest.mark.parametrize("n", [3, 300])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_distribution(n, temperature):
    logits = np.linspace(-2, 2, n).astype(np.float32)
    sampler = Sampler(SamplingParams(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0, seed=11))
    draws = 10_000
    counts = np.bincount([sampler.sample(logits, i) for i in range(draws)], minlength=n)
    p = np.exp(logits.astype(np.float64) / temperature)
    p /= p.sum()
    chi2 = ((counts - draws * p) ** 2 / (draws * p)).sum()
    assert chi2 < (n - 1) + 5 * np.sqrt(2 * (n - 1))  # five standard deviations of a chi-square


@pytest.mark.parametrize("u", [0.0, 0.25, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("n", [1, 2, 127, 128, 129, 1000])
def test_draw_inverts_the_cumulative_sum(n, u):
    kept = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    p = np.exp(kept.astype(np.float64))
    edges = np.concatenate([[0], np.cumsum(p / p.sum())])
    i = draw(kept, 1.0, u)
    assert edges[i] - 1e-6 <= u <= edges[i + 1] + 1e-6


def test_a_tiny_temperature_is_greedy():
    logits = np.array([0.0, 1e-3, 0.5], np.float32)
    assert Sampler(SamplingParams(temperature=1e-30, seed=1)).sample(logits, 0) == 2


def test_uniform_is_uniform_and_depends_on_both_arguments():
    values = np.array([uniform(42, i) for i in range(20_000)])
    assert abs(values.mean() - 0.5) < 0.01 and abs(values.var() - 1 / 12) < 0.003
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(values, [uniform(43, i) for i in range(20_000)])[0, 1]) < 0.03
    assert uniform(42, 7) == values[7] != uniform(43, 7)
    assert all(0 <= uniform(s, p) < 1 for s in (0, -1, 2**64, 2**70) for p in (0, 2**40))


def picks(params, logits, generated=(), prompt=()):
    sampler = Sampler(params, prompt)
    for token in generated:
        sampler.accept(token)
    return sampler.sample(np.array(logits, np.float32), 0)


def test_repeat_penalty_reaches_into_the_prompt_and_pushes_both_signs_down():
    params = SamplingParams(temperature=0, repeat_penalty=2.0)
    assert picks(params, [1.0, 0.9, 0.0], prompt=[0]) == 1
    assert picks(params, [-0.5, -0.6, -9.0], generated=[0]) == 1
    assert picks(params, [1.0, 0.9, 0.0], prompt=[0] + [2] * 64) == 0  # beyond the window
    assert (
        picks(
            SamplingParams(temperature=0, repeat_penalty=2.0, penalty_window=0), [1.0, 0.9, 0.0], prompt=[0] + [2] * 64
        )
        == 1
    )


def test_presence_counts_once_and_frequency_each_time_of_the_answer_alone():
    presence = SamplingParams(temperature=0, presence_penalty=0.3)
    assert picks(presence, [1.0, 0.8], generated=[0, 0, 0]) == 1
    assert picks(presence, [1.0, 0.6], generated=[0, 0, 0]) == 0
    assert picks(presence, [1.0, 0.8], prompt=[0, 0, 0]) == 0
    frequency = SamplingParams(temperature=0, frequency_penalty=0.3)
    assert picks(frequency, [1.0, 0.6], generated=[0]) == 0
    assert picks(frequency, [1.0, 0.6], generated=[0, 0]) == 1


def test_penalties_leave_the_logits_alone():
    logits = np.ones(10, np.float32)
    sampler = Sampler(SamplingParams(repeat_penalty=1.5, presence_penalty=1, frequency_penalty=1), [1, 2])
    sampler.accept(3)
    sampler.sample(logits, 0)
    assert (logits == 1).all()


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1}, {"temperature": float("nan")}, {"top_p": 1.5}, {"top_k": -1}, {"min_p": 2},
     {"repeat_penalty": 0}, {"max_tokens": -2}, {"stop": ("",)}, {"draft": "x"}, {"draft": 16}],
)  # fmt: skip
def test_wrong_settings_are_refused_by_name(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        SamplingParams(**wrong)
