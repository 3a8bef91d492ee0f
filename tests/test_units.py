"""How sizes and times are written."""

from __future__ import annotations

import pytest

from localinfer.units import GIB, MIB, TIB, format_bytes, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.004, "0.00 s"), (9.99, "9.99 s"), (9.996, "10.0 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"),
        (140, "2 min 20 s"), (3599.4, "59 min 59 s"), (3599.6, "1 h 00 min"), (8379.79, "2 h 19 min"),
    ],
)  # fmt: skip
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 B"), (-3 * MIB, "-3.00 MiB"), (3 * GIB // 2, "1.50 GiB"), (2 * TIB, "2.00 TiB")]
)
def test_bytes(n, text):
    assert format_bytes(n) == text
