"""Row operations: both instruction sets give the same bits, and their polynomials keep the bounds that ops.h states."""

from __future__ import annotations

import ctypes
import platform
from ctypes import POINTER, c_float, c_int, c_int64
from typing import Any

import numpy as np
import pytest

from localinfer.backends.cpu.lib import library_path

FLOATS = POINTER(c_float)
_SIGNATURES: dict[str, list[Any]] = {
    "rms_norm": [FLOATS, FLOATS, c_float, c_int64, FLOATS],
    "layer_norm": [FLOATS, FLOATS, FLOATS, c_float, c_int64, FLOATS],
    "glu": [c_int, FLOATS, FLOATS, c_int64, FLOATS],
    "activate": [c_int, FLOATS, c_int64, FLOATS],
    "softcap": [FLOATS, c_float, c_int64, FLOATS],
    "scale": [FLOATS, c_float, c_int64, FLOATS],
    "add": [FLOATS, FLOATS, c_int64, FLOATS],
    "mul": [FLOATS, FLOATS, c_int64, FLOATS],
    "add_scaled": [FLOATS, c_float, c_int64, FLOATS],
    "add_product": [FLOATS, FLOATS, c_int64, FLOATS],
    "dot": [FLOATS, FLOATS, c_int64],
    "scan": [FLOATS, FLOATS, c_float, FLOATS, FLOATS, c_int64],
    "rotate_half": [FLOATS, FLOATS, FLOATS, c_int64],
    "rotate_interleaved": [FLOATS, FLOATS, FLOATS, c_int64],
    "softmax": [FLOATS, c_int64],
    "exp": [FLOATS, c_int64, FLOATS],
}
_RETURNS_FLOAT = {"dot", "scan"}
SIZES = [1, 2, 3, 7, 8, 9, 31, 32, 33, 255, 256, 257]


class Table(ctypes.Structure):
    """li_ops."""

    _fields_ = tuple(
        (name, ctypes.CFUNCTYPE(c_float if name in _RETURNS_FLOAT else None, *arguments))
        for name, arguments in _SIGNATURES.items()
    )


def table(name: str) -> Table:
    path = library_path()
    if path is None:
        pytest.skip("the C kernels are not built")
    return Table.in_dll(ctypes.CDLL(str(path)), f"li_ops_{name}")


def pointer(x: np.ndarray) -> Any:
    return x.ctypes.data_as(FLOATS)


def every_result(ops: Table, n: int) -> dict[str, np.ndarray]:
    """All operations on the same n values."""
    rng = np.random.default_rng(n)
    a, b, c, d = ((rng.standard_normal(n) * 3).astype(np.float32) for _ in range(4))
    pa, pb, pc, pd = map(pointer, (a, b, c, d))
    found: dict[str, np.ndarray] = {}

    def run(name: str, *arguments: Any, start: np.ndarray | None = None) -> None:
        out = np.full(n, np.nan, np.float32) if start is None else start.copy()
        getattr(ops, name)(*arguments, pointer(out))
        found[name if name not in found else f"{name} {len(found)}"] = out

    run("rms_norm", pa, pb, 1e-5, n)
    run("rms_norm", pa, None, 1e-5, n)
    run("layer_norm", pa, pb, pc, 1e-5, n)
    for act in range(1, 7):
        run("glu", act, pa, pb, n)
        run("activate", act, pa, n)
    run("softcap", pa, 2.0, n)
    run("scale", pa, 1.7, n)
    run("add", pa, pb, n)
    run("mul", pa, pb, n)
    run("add_scaled", pa, 0.3, n, start=b)
    run("add_product", pa, pb, n, start=c)
    run("exp", pa, n)
    state = a.copy()
    y = ops.scan(pointer(state), pb, 0.7, pc, pd, n)
    found["scan"] = np.append(state, np.float32(y))
    found["dot"] = np.array([ops.dot(pa, pb, n)], np.float32)
    for name in ("rotate_half", "rotate_interleaved"):
        x = np.concatenate([a, b])
        getattr(ops, name)(pointer(x), pc, pd, n)
        found[name] = x
    x = a.copy()
    ops.softmax(pointer(x), n)
    found["softmax"] = x
    return found


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="AVX2 is for x86")
@pytest.mark.parametrize("n", SIZES)
def test_avx2_gives_the_bits_of_the_baseline(n: int) -> None:
    wide, narrow = every_result(table("avx2"), n), every_result(table("baseline"), n)
    assert [name for name in narrow if not np.array_equal(wide[name], narrow[name])] == []


@pytest.mark.parametrize("n", SIZES)
def test_against_float64(n: int) -> None:
    found = every_result(table("baseline"), n)
    rng = np.random.default_rng(n)
    a, b, c, d = ((rng.standard_normal(n) * 3).astype(np.float32).astype(np.float64) for _ in range(4))
    mean = a.mean()
    expected = {
        "rms_norm": a / np.sqrt(np.mean(a * a) + 1e-5) * b,
        "layer_norm": (a - mean) / np.sqrt(np.mean((a - mean) ** 2) + 1e-5) * b + c,
        "add_scaled": b + a * np.float64(np.float32(0.3)),
        "add_product": c + a * b,
        "dot": np.array([a @ b]),
        "softmax": np.exp(a - a.max()) / np.exp(a - a.max()).sum(),
        "rotate_half": np.concatenate([a * c - b * d, a * d + b * c]),
    }
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= 2e-6 * max(1.0, np.abs(value).max()), name


def test_exp_keeps_its_bound() -> None:
    x = np.concatenate([np.linspace(-87.3, 88.3, 400_001), np.linspace(-1, 1, 100_001)]).astype(np.float32)
    out = np.empty_like(x)
    table("baseline").exp(pointer(x), x.size, pointer(out))
    exact = np.exp(x.astype(np.float64))
    assert np.abs(out / exact - 1).max() < 2e-7


def test_exp_beyond_its_range_stays_finite_and_ordered() -> None:
    x = np.array([-np.inf, -1e30, -90, 90, 1e30, np.inf, np.nan], np.float32)
    out = np.empty_like(x)
    table("baseline").exp(pointer(x), x.size, pointer(out))
    assert np.all(out[:3] < 1.3e-38) and np.all(out[3:6] > 1e38) and np.all(np.isfinite(out[:6])) and np.isnan(out[6])


def test_tanh_and_activations_keep_their_bounds() -> None:
    ops = table("baseline")
    x = np.concatenate([np.linspace(-12, 12, 200_000), np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    out, exact = np.empty_like(x), x.astype(np.float64)
    ops.softcap(pointer(x), 1.0, x.size, pointer(out))
    assert np.abs(out - np.tanh(exact)).max() < 1.5e-7
    assert np.nanmax(np.abs(out / np.tanh(exact) - 1)) < 3e-7
    ops.activate(1, pointer(x), x.size, pointer(out))
    assert np.abs(out - exact / (1 + np.exp(-exact))).max() < 5e-7 * 12
    ops.activate(2, pointer(x), x.size, pointer(out))
    gelu = 0.5 * exact * (1 + np.tanh(0.7978845608028654 * exact * (1 + 0.044715 * exact * exact)))
    assert np.abs(out - gelu).max() < 5e-7 * 12
