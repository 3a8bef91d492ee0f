"""Rope scaling against figures worked out by hand from the papers' formulas."""

from __future__ import annotations

import math

import pytest

from localinfer.models.rope import RopeScaling, rope_config


def test_plain_angles_fall_from_one_to_one_over_base() -> None:
    rope = rope_config(8, 10000.0, "half")
    assert rope.inv_freq == pytest.approx((1.0, 0.1, 0.01, 0.001))
    assert rope.magnitude == 1.0


def test_linear_divides_every_angle() -> None:
    rope = rope_config(4, 100.0, "half", RopeScaling("linear", 4.0, 1024))
    assert rope.inv_freq == pytest.approx((0.25, 0.025))


def test_factors_divide_their_own_angle() -> None:
    assert rope_config(4, 100.0, "half", None, (2.0, 5.0)).inv_freq == pytest.approx((0.5, 0.02))


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones() -> None:
    scaling = RopeScaling("yarn", 8.0, 4096)
    rope = rope_config(128, 10000.0, "half", scaling)
    plain = rope_config(128, 10000.0, "half")
    assert rope.inv_freq[0] == plain.inv_freq[0]  # 652 turns over the context: more than beta_fast
    assert rope.inv_freq[-1] == pytest.approx(plain.inv_freq[-1] / 8.0)  # less than beta_slow turns
    ratios = [r / p for r, p in zip(rope.inv_freq, plain.inv_freq, strict=True)]
    assert ratios == sorted(ratios, reverse=True)
    assert rope.magnitude == pytest.approx(1.0 + 0.1 * math.log(8.0))


def test_yarn_ramp_starts_where_a_pair_turns_beta_fast_times() -> None:
    """d * ln(ctx / (beta * 2 pi)) / (2 ln base) is 20.9 for beta 32 and 45.0 for beta 1."""
    rope = rope_config(128, 10000.0, "half", RopeScaling("yarn", 8.0, 4096))
    plain = rope_config(128, 10000.0, "half")
    changed = [i for i, (r, p) in enumerate(zip(rope.inv_freq, plain.inv_freq, strict=True)) if r != p]
    assert changed[0] == 21  # floor(20.9) = 20 has the ramp's value 0
