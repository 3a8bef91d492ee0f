from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize as outside_quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from localinfer.errors import FormatError, UnsupportedModel
from localinfer.formats.dequant import DECODERS, dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import ENCODERS, quantize, random_blocks

BLOCK_TYPES = [kind for kind in ENCODERS if kind.is_quantized]


@pytest.mark.parametrize("kind", ENCODERS)
def test_random_values_encode_as_the_gguf_package_does(kind: GGMLType):
    rng = np.random.default_rng(int(kind))
    x = rng.normal(0, 1, (500, 256)).astype(np.float32)
    x[0] = 0
    x[1] = 3.5
    x[2] *= 1e-30
    x[3] = rng.integers(-127, 128, 256) + 0.5
    x[4] *= 1e4
    expected = outside_quantize(x, GGMLQuantizationType(int(kind))).view(np.uint8)
    assert np.array_equal(quantize(x, kind), expected)


def test_halves_are_rounded_away_from_zero_and_other_values_are_not():
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = [127, 0.5, -0.5, 1.5, -2.5, np.nextafter(np.float32(0.5), np.float32(0))]
    q = quantize(x, GGMLType.Q8_0)[0, 2:].view(np.int8)
    assert q[:6].tolist() == [127, 1, -1, 2, -3, 0]


def test_q4_0_by_hand():
    """The largest by size, -8, gets code 0; the scale is then 1, and 8 itself is out of range: code 15 is 7."""
    x = np.zeros((1, 32), np.float32)
    x[0, :4] = [-8, 8, 3.4, -3.6]
    blocks = quantize(x, GGMLType.Q4_0)
    assert dequantize(blocks, GGMLType.Q4_0, (1, 32))[0, :5].tolist() == [-8, 7, 3, -4, 0]


def test_bf16_keeps_nan_and_infinity_and_rounds_to_even():
    x = np.array([[np.nan, np.inf, -np.inf, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38]], np.float32)
    back = dequantize(quantize(x, GGMLType.BF16), GGMLType.BF16, (6,))
    assert np.isnan(back[0])
    assert back[1:].tolist() == [np.inf, -np.inf, 1, 1 + 2**-6, np.float32(np.uint32(0x7F80 << 16).view(np.float32))]


@given(arrays(np.float32, (3, 64), elements=st.floats(-1e4, 1e4, width=32)), st.sampled_from(BLOCK_TYPES))
@settings(max_examples=100, deadline=None)
def test_what_comes_back_is_within_a_step(x: np.ndarray, kind: GGMLType):
    """Half a step, a whole one where the range of Q4_0 and Q5_0 ends, and the rounding of half-float scales."""
    back = dequantize(quantize(x, kind), kind, x.shape).reshape(-1, 32)
    blocks = x.reshape(-1, 32)
    size = np.abs(blocks).max(axis=1)
    spread = np.ptp(blocks, axis=1)
    step = {
        GGMLType.Q4_0: size / 8,
        GGMLType.Q4_1: spread / 15 / 2,
        GGMLType.Q5_0: size / 16,
        GGMLType.Q5_1: spread / 31 / 2,
        GGMLType.Q8_0: size / 127 / 2,
    }[kind]
    allowed = step * 1.001 + (size + spread) * 2.0**-10 + 128 * 2.0**-25
    assert (np.abs(back - blocks).max(axis=1) <= allowed).all()


def test_tiny_and_huge_values_give_no_warning_and_no_nan():
    with np.errstate(all="raise", under="ignore"):
        for kind in BLOCK_TYPES:
            for size in (1e-45, 1e-38, 0.0):
                x = np.full((1, 32), size, np.float32)
                x[0, 0] = -size
                assert np.isfinite(dequantize(quantize(x, kind), kind, (1, 32))).all()


def test_shapes():
    assert quantize(np.zeros((2, 3, 64)), GGMLType.Q8_0).shape == (2, 3, 68)
    assert quantize(np.zeros(64, np.float16), GGMLType.F16).shape == (128,)


def test_refusals():
    with pytest.raises(UnsupportedModel, match="Q4_K has no encoder here; there are: F32, F16, BF16, Q4_0"):
        quantize(np.zeros(256), GGMLType.Q4_K)
    with pytest.raises(FormatError, match="Q8_0: a row must hold a multiple of 32 values, found 33"):
        quantize(np.zeros(33), GGMLType.Q8_0)
    with pytest.raises(UnsupportedModel, match="Q1_0"):
        random_blocks(GGMLType.Q1_0, (1, 128), np.random.default_rng(0))


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("rms", [1.0, 0.02])
def test_random_blocks_are_sane(kind: GGMLType, rms: float):
    n_in = 8 * kind.block_values
    blocks = random_blocks(kind, (4, 50, n_in), np.random.default_rng(1), rms)
    assert blocks.shape == (4, 50, kind.row_bytes(n_in)) and blocks.dtype == np.uint8
    values = dequantize(blocks, kind, (200, n_in))
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > (12 if kind in (GGMLType.MXFP4, GGMLType.NVFP4) else 100)
    if kind not in (GGMLType.I8, GGMLType.I16, GGMLType.I32, GGMLType.I64):
        assert 0.6 * rms < np.sqrt(np.mean(values**2)) < 1.6 * rms


def test_random_blocks_follow_the_generator():
    a, b = (random_blocks(GGMLType.Q6_K, (3, 256), np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(a, b)
