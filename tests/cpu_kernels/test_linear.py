"""The matrix kernels: right against numpy on decoded blocks; the same bits for every T, split, alignment, level."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from localinfer.formats.dequant import can_dequantize, dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import random_blocks
from tests.cpu_kernels.linear_kernels import (
    aligned_bytes,
    dequantize_row,
    level,
    levels,
    library,
    linear,
    prepare,
    supported_types,
)

Floats = NDArray[np.float32]

# fmt: off
FUSED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
         "F16", "BF16", "F32"]
BY_BLOCK = ["Q8_1", "Q8_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0",
            "NVFP4"]
# fmt: on
ALL_TYPES = [GGMLType[name] for name in FUSED + BY_BLOCK]
EDGE_COUNTS = (1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33)
N_INS = {1: (1, 7, 8, 9, 33, 64, 576), 32: (32, 64, 160, 224, 256, 576, 1536), 64: (64, 576), 256: (256, 512, 1536)}


def bits(values: Floats) -> NDArray[np.uint32]:
    return np.ascontiguousarray(values).view(np.uint32)


def activations(t: int, n_in: int) -> Floats:
    """Rows of very different sizes, one of them zero, with an outlier here and there."""
    rng = np.random.default_rng(n_in)
    x = rng.normal(size=(33, n_in)) * 10.0 ** rng.integers(-4, 4, (33, 1))
    x[rng.random(x.shape) < 0.01] *= 100
    x[2] = 0
    return np.ascontiguousarray(x[:t], np.float32)


@cache
def weights(kind: GGMLType, n_out: int, n_in: int) -> NDArray[np.uint8]:
    return random_blocks(kind, (n_out, n_in), np.random.default_rng([kind, n_out, n_in]))


@cache
def scalar_result(kind: GGMLType, n_in: int) -> Floats:
    """(33, 33) of the plain C reference, each token alone."""
    x = activations(33, n_in)
    with level("scalar"):
        return np.concatenate([linear(kind, weights(kind, 33, n_in), x[t : t + 1]) for t in range(33)])


def test_types_with_kernels_are_those_listed() -> None:
    assert set(supported_types()) == set(ALL_TYPES)


def test_unsupported_types_say_so() -> None:
    lib = library()
    for type_id in (-1, 4, 24, 41, 42, 1000):
        assert lib.li_type_supported(type_id) == 0
        assert lib.li_activation_kind(type_id) == -1


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda k: k.name)
def test_rows_decode_to_the_reference_bits(kind: GGMLType) -> None:
    assert can_dequantize(kind)
    for n_in in N_INS[kind.block_values]:
        blocks = weights(kind, 33, n_in)
        expected = dequantize(blocks, kind, (33, n_in))
        found = np.stack([dequantize_row(kind, row, n_in) for row in blocks])
        np.testing.assert_array_equal(bits(found + np.float32(0)), bits(expected + np.float32(0)))


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda k: k.name)
def test_scalar_agrees_with_numpy(kind: GGMLType) -> None:
    """Rounding a value of x costs up to 2^-15 of its block's largest (Q4_0, Q4_1: 2^-12; Q2_K, Q3_K: 2^-14 of that of
    256 values): about 1e-4 of |x| |w|, in the worst case."""
    for n_in in N_INS[kind.block_values]:
        x = activations(33, n_in).astype(np.float64)
        w = dequantize(weights(kind, 33, n_in), kind, (33, n_in)).astype(np.float64)
        norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(w, axis=1)
        error = np.abs(scalar_result(kind, n_in) - x @ w.T)
        tolerance = {0: 1e-6, 1: 1.5e-4, 2: 1.2e-3, 3: 2.5e-4}[library().li_activation_kind(kind)]
        assert (error <= tolerance * norms).all(), f"n_in {n_in}: {np.max(error / np.maximum(norms, 1e-30))}"


@pytest.mark.parametrize("name", [n for n in levels() if n != "scalar"])
@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda k: k.name)
def test_every_level_and_t_gives_the_reference_bits(kind: GGMLType, name: str) -> None:
    for n_in in N_INS[kind.block_values]:
        x, expected = activations(33, n_in), scalar_result(kind, n_in)
        with level(name):
            for t in EDGE_COUNTS:
                found = linear(kind, weights(kind, 33, n_in), x[:t])
                np.testing.assert_array_equal(bits(found), bits(expected[:t]), f"n_in {n_in}, T {t}")


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda k: k.name)
def test_rows_as_wide_as_the_largest_models(kind: GGMLType) -> None:
    """Feed-forward width of the 70B class: the same bits from every kernel, straight from blocks and from tiles."""
    n_in, n_out = 28672, 5
    blocks, x = weights(kind, n_out, n_in), activations(17, n_in)
    with level("scalar"):
        expected = np.concatenate([linear(kind, blocks, x[t : t + 1]) for t in (0, 4)])
    for name in levels()[1:]:
        with level(name):
            for t in (1, 5, 8, 17):
                found = linear(kind, blocks, x[:t])[[0, min(4, t - 1)]]
                np.testing.assert_array_equal(bits(found), bits(expected[[0, 1 if t > 1 else 0]]), f"{name}, T {t}")


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda k: k.name)
def test_scalar_does_not_depend_on_t(kind: GGMLType) -> None:
    n_in = N_INS[kind.block_values][-1]
    with level("scalar"):
        found = linear(kind, weights(kind, 33, n_in), activations(9, n_in))
    np.testing.assert_array_equal(bits(found), bits(scalar_result(kind, n_in)[:9]))


@pytest.mark.parametrize("name", levels())
@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda k: k.name)
def test_any_number_of_rows_any_split_any_alignment(kind: GGMLType, name: str) -> None:
    n_in = N_INS[kind.block_values][1]
    blocks, expected = weights(kind, 33, n_in), scalar_result(kind, n_in)
    with level(name):
        for t in (1, 3, 12):
            x = activations(t, n_in)
            for n_out in EDGE_COUNTS:
                found = linear(kind, blocks[:n_out], x, offset=n_out % 5)
                np.testing.assert_array_equal(bits(found), bits(expected[:t, :n_out]), f"T {t}, n_out {n_out}")
            for cuts in [(1,), (16,), (5, 21), (16, 32), tuple(range(1, 33))]:
                found = linear(kind, blocks, x, cuts, offset=1)
                np.testing.assert_array_equal(bits(found), bits(expected[:t]), f"T {t}, cuts {cuts}")


@pytest.mark.parametrize("name", levels())
@pytest.mark.parametrize(
    ("kind", "n_in", "cut"), [(GGMLType.Q4_1, 576, 7), (GGMLType.F16, 576, 7), (GGMLType.Q3_K, 768, 8)]
)
def test_preparation_can_be_split_by_tokens_and_by_blocks(kind: GGMLType, n_in: int, cut: int, name: str) -> None:
    lib, t = library(), 3
    x = activations(t, n_in)
    with level(name):
        expected, found = prepare(kind, x), aligned_bytes(lib.li_activation_bytes(kind, n_in, t), fill=0x5A)
        stride = lib.li_activation_bytes(kind, n_in, 1)
        lib.li_prepare_activations(kind, x.ctypes.data, n_in, n_in, 0, 1, found.ctypes.data)
        lib.li_prepare_activations(kind, x.ctypes.data, n_in, n_in, 2, 3, found.ctypes.data)
        for b0, b1 in ((cut, n_in // 32), (0, cut)):
            lib.li_prepare_blocks(kind, x[1].ctypes.data, n_in, b0, b1, found[stride:].ctypes.data)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [GGMLType.Q4_1, GGMLType.Q2_K, GGMLType.F32])
def test_all_levels_prepare_the_same_bytes(kind: GGMLType) -> None:
    """On x86; those of ARM other than plain C have an order of their own, and agree among themselves."""
    x = activations(33, 1536)
    x[1, :32] = np.float32(1e-38)
    x[3, 40:64] *= np.float32(1e30)
    prepared = []
    for name in levels()[1:] if "neon" in levels() else levels():
        with level(name):
            prepared.append(prepare(kind, x))
    for other in prepared[1:]:
        np.testing.assert_array_equal(other, prepared[0])


@pytest.mark.parametrize("name", levels())
@pytest.mark.parametrize(
    "kind", [GGMLType.Q4_1, GGMLType.Q2_K, GGMLType.Q6_K, GGMLType.F16, GGMLType.IQ2_XS], ids=lambda k: k.name
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_not_hidden(kind: GGMLType, name: str, bad: float) -> None:
    x = activations(9, 512)
    x[4, 300] = bad
    with level(name):
        y = linear(kind, weights(kind, 33, 512), x)
    assert not np.isfinite(y[4]).any()
    assert np.isfinite(np.delete(y, 4, axis=0)).all()


@pytest.mark.parametrize("name", levels())
@pytest.mark.parametrize("kind", [k for k in ALL_TYPES if k.block_values > 1], ids=lambda k: k.name)
def test_the_largest_sums_do_not_overflow(kind: GGMLType, name: str) -> None:
    """All bytes of a block the same, scales aside, and x at its bound with the signs that make sums largest."""
    n_in = 256
    blocks = np.concatenate([np.full_like(weights(kind, 1, n_in), byte) for byte in (0x00, 0x7F, 0x80, 0xFF, 0x88)])
    scales = weights(kind, len(blocks), n_in)
    keep_scales(kind, blocks, scales)
    w = dequantize(blocks, kind, (len(blocks), n_in)).astype(np.float64)
    x = np.concatenate([np.where(w < 0, -1, 1), np.where(w < 0, 1, -1)]).astype(np.float32)
    with level(name):
        y = linear(kind, blocks, x)
    exact = x.astype(np.float64) @ w.T
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-4 * np.abs(w).sum(axis=1).max())
    size = np.abs(w).sum(axis=1)
    np.testing.assert_allclose(np.diagonal(y[: len(w)]), size, rtol=2e-5)


def keep_scales(kind: GGMLType, blocks: NDArray[np.uint8], source: NDArray[np.uint8]) -> None:
    """Float scales of `source` into blocks: whatever bytes do not change the decoded size of a block by themselves."""
    places = {
        "Q2_K": (80, 84), "Q3_K": (108, 110), "Q4_K": (0, 4), "Q5_K": (0, 4), "Q6_K": (208, 210), "TQ1_0": (52, 54),
        "TQ2_0": (64, 66), "IQ1_M": (48, 56), "MXFP4": (0, 1), "NVFP4": (0, 4), "Q8_K": (0, 4), "Q4_1": (0, 4),
        "Q5_1": (0, 4), "Q8_1": (0, 4),
    }  # fmt: skip
    start, end = places.get(kind.name, (0, 2))
    to, source = blocks.reshape(-1, kind.block_bytes), source.reshape(-1, kind.block_bytes)
    to[:, start:end] = source[:, start:end]
