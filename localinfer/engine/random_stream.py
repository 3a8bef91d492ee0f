"""Uniform numbers that depend on nothing but (seed, position): the draw for the token at a position.

A sampler that keeps no generator state draws the same number for a position whether it comes there one token at a
time, inside a verified draft, or again after a rollback. The mixing function is the output step of SplitMix64
(Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014), applied to seed and counter.
"""

from __future__ import annotations

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd: the counter's stride


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits."""
    key = _mix((seed & _MASK) + _GOLDEN & _MASK)
    return (_mix((key + (position + 1) * _GOLDEN) & _MASK) >> 11) * 2.0**-53
