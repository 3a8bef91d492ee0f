"""Reference encoders in numpy: float32 -> ggml blocks, for the KV cache's formats and for tests.

Letters: n blocks at a time; (n, block_values) float32 in, (n, block_bytes) uint8 out. Rounding is that of ggml's
`quantize_row_*_ref` (ggml-quants.c): scales are found in float32, used in float32, and stored as half floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from localinfer.errors import UnsupportedModel
from localinfer.formats.dequant import HALF_E4M3, dequantize
from localinfer.formats.ggml_types import GGMLType

Blocks = NDArray[np.uint8]
Values = NDArray[np.float32]


def quantize(values: NDArray[np.floating], kind: GGMLType) -> Blocks:
    """(..., in) values -> (..., row_bytes) uint8. UnsupportedModel for a type without encoder."""
    if kind not in ENCODERS:
        raise UnsupportedModel(f"tensor type {kind.name} has no encoder here; there are: {_names(ENCODERS)}")
    x = np.ascontiguousarray(values, np.float32)
    row_bytes = kind.row_bytes(x.shape[-1])
    blocks = ENCODERS[kind](x.reshape(-1, kind.block_values))
    return blocks.reshape(*x.shape[:-1], row_bytes)


def _names(kinds: dict[GGMLType, Callable[[Values], Blocks]]) -> str:
    return ", ".join(kind.name for kind in kinds)


def quantize_f32(x: Values) -> Blocks:
    """As it is."""
    return _bytes(x.astype("<f4"))


def quantize_f16(x: Values) -> Blocks:
    """Rounded to even; beyond 65504 infinite."""
    return _half(x)


def quantize_bf16(x: Values) -> Blocks:
    """Rounded to even; a NaN stays one."""
    bits = x.view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    quiet_nan = bits >> 16 | 0x40
    return _bytes(np.where(np.isnan(x), quiet_nan, rounded).astype("<u2"))


def quantize_q4_0(x: Values) -> Blocks:
    """d = (the value of largest size) / -8; q = trunc(x / d + 8.5), at most 15."""
    d = _extreme(x) / np.float32(-8)
    return np.concatenate([_half(d), _pack_nibbles(_steps(x, d, 8.5, 15))], axis=1)


def quantize_q4_1(x: Values) -> Blocks:
    """m = min, d = (max - min) / 15; q = trunc((x - m) / d + 0.5), at most 15."""
    m = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - m) / np.float32(15)
    return np.concatenate([_half(d), _half(m), _pack_nibbles(_steps(x - m, d, 0.5, 15))], axis=1)


def quantize_q5_0(x: Values) -> Blocks:
    """d = (the value of largest size) / -16; q = trunc(x / d + 16.5), at most 31."""
    d = _extreme(x) / np.float32(-16)
    return np.concatenate([_half(d), *_pack_five_bits(_steps(x, d, 16.5, 31))], axis=1)


def quantize_q5_1(x: Values) -> Blocks:
    """m = min, d = (max - min) / 31; q = trunc((x - m) / d + 0.5), at most 31."""
    m = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - m) / np.float32(31)
    return np.concatenate([_half(d), _half(m), *_pack_five_bits(_steps(x - m, d, 0.5, 31))], axis=1)


def quantize_q8_0(x: Values) -> Blocks:
    """d = max |x| / 127; q = x / d rounded, halves away from zero."""
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    return np.concatenate([_half(d), _bytes(_round_half_away(x * _inverse(d)).astype(np.int8))], axis=1)


def _extreme(x: Values) -> Values:
    """The value of largest size in each block, sign and all; the first of equals."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)


def _inverse(d: Values) -> Values:
    """1 / d; 0 where d is 0, or so small that the inverse is infinite (as a half float such a d is 0 anyway)."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _round_half_away(x: Values) -> Values:
    """C's roundf. Not trunc(|x| + 0.5): that sum may itself round up to the next whole number."""
    size = np.abs(x)
    whole = np.floor(size)
    return np.copysign(whole + (size - whole >= 0.5), x)


def _steps(x: Values, d: Values, offset: float, largest: int) -> Blocks:
    """trunc(x / d + offset), bounded by 0 and `largest`."""
    return np.clip(np.trunc(x * _inverse(d) + np.float32(offset)), 0, largest).astype(np.uint8)


def _half(x: Values) -> Blocks:
    with np.errstate(over="ignore"):
        return _bytes(x.astype("<f2"))


def _bytes(x: NDArray) -> Blocks:
    return np.ascontiguousarray(x).view(np.uint8).reshape(x.shape[0], -1)


def _pack_nibbles(q: Blocks) -> Blocks:
    """(n, 32) -> (n, 16): the first half in the low nibbles."""
    return (q[:, :16] & np.uint8(15)) | q[:, 16:] << np.uint8(4)


def _pack_five_bits(q: Blocks) -> tuple[Blocks, Blocks]:
    """(n, 32) values 0..31 -> (n, 4) fifth bits, (n, 16) nibbles."""
    return np.packbits(q >> 4, axis=1, bitorder="little"), _pack_nibbles(q)


ENCODERS: Final[dict[GGMLType, Callable[[Values], Blocks]]] = {
    GGMLType.F32: quantize_f32,
    GGMLType.F16: quantize_f16,
    GGMLType.BF16: quantize_bf16,
    GGMLType.Q4_0: quantize_q4_0,
    GGMLType.Q4_1: quantize_q4_1,
    GGMLType.Q5_0: quantize_q5_0,
    GGMLType.Q5_1: quantize_q5_1,
    GGMLType.Q8_0: quantize_q8_0,
}


# -- blocks of any type, for tests of kernels --------------------------------------------------------------------------

# Where the half-float scales of a block are. All other bytes may have any value, but for the types treated below.
_HALF_SCALES: Final[dict[GGMLType, tuple[int, ...]]] = {
    GGMLType.Q4_0: (0,),
    GGMLType.Q4_1: (0, 2),
    GGMLType.Q5_0: (0,),
    GGMLType.Q5_1: (0, 2),
    GGMLType.Q8_0: (0,),
    GGMLType.Q8_1: (0, 2),
    GGMLType.Q2_K: (80, 82),
    GGMLType.Q3_K: (108,),
    GGMLType.Q4_K: (0, 2),
    GGMLType.Q5_K: (0, 2),
    GGMLType.Q6_K: (208,),
    GGMLType.IQ2_XXS: (0,),
    GGMLType.IQ2_XS: (0,),
    GGMLType.IQ2_S: (0,),
    GGMLType.IQ3_XXS: (0,),
    GGMLType.IQ3_S: (0,),
    GGMLType.IQ1_S: (0,),
    GGMLType.IQ4_NL: (0,),
    GGMLType.IQ4_XS: (0,),
    GGMLType.TQ1_0: (52,),
    GGMLType.TQ2_0: (64,),
}


def random_blocks(kind: GGMLType, shape: Sequence[int], rng: np.random.Generator, rms: float = 1.0) -> Blocks:
    """Random blocks of any type with a decoder: (..., in) -> (..., row_bytes) uint8.

    All bit patterns of the quantized values occur; scales are finite, of both signs where the type has signs, and such
    that decoded values have a root mean square near `rms`.
    """
    row_bytes = kind.row_bytes(shape[-1])
    n = int(np.prod(shape[:-1], dtype=np.int64)) * row_bytes // kind.block_bytes
    blocks = _random(kind, n, rng, rms / _unit_rms(kind))
    return blocks.reshape(*shape[:-1], row_bytes)


@cache
def _unit_rms(kind: GGMLType) -> float:
    """Root mean square of decoded values when scales are near 1."""
    blocks = _random(kind, 256, np.random.default_rng(0), 1.0)
    return float(np.sqrt(np.mean(np.square(dequantize(blocks, kind, (256, kind.block_values)), dtype=np.float64))))


def _random(kind: GGMLType, n: int, rng: np.random.Generator, scale: float) -> Blocks:
    """n blocks whose scales are `scale` times 0.5 to 1.5."""
    if not kind.is_quantized:
        return _random_plain(kind, n, rng, scale)
    blocks = rng.integers(0, 256, (n, kind.block_bytes), dtype=np.uint8)
    factors = scale * rng.uniform(0.5, 1.5, (n, 4)) * rng.choice([-1, 1], (n, 4))
    for i, at in enumerate(_HALF_SCALES.get(kind, ())):
        blocks[:, at : at + 2] = _half(factors[:, i : i + 1].astype(np.float32))
    special = _SPECIAL.get(kind)
    if special:
        special(blocks, factors, rng)
    elif kind not in _HALF_SCALES:
        raise UnsupportedModel(f"tensor type {kind.name} has no decoder here")
    return blocks


def _random_plain(kind: GGMLType, n: int, rng: np.random.Generator, scale: float) -> Blocks:
    if kind in (GGMLType.F16, GGMLType.BF16, GGMLType.F32):
        return ENCODERS[kind](rng.normal(0, scale, (n, 1)).astype(np.float32))
    if kind is GGMLType.F64:
        return _bytes(rng.normal(0, scale, (n, 1)).astype("<f8"))
    return _bytes(rng.integers(-100, 101, (n, 1)).astype(f"<i{kind.block_bytes}"))


def _special_q8_k(blocks: Blocks, factors: NDArray[np.float64], rng: np.random.Generator) -> None:
    """A float32 scale, and sums that belong to the values."""
    blocks[:, :4] = _bytes(factors[:, :1].astype("<f4"))
    sums = blocks[:, 4:260].view(np.int8).reshape(-1, 16, 16).sum(axis=2, dtype=np.int16)
    blocks[:, 260:] = _bytes(sums.astype("<i2"))


def _special_q8_1(blocks: Blocks, factors: NDArray[np.float64], rng: np.random.Generator) -> None:
    """The second half float is d times the sum of the values."""
    d = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    total = blocks[:, 4:].view(np.int8).sum(axis=1, dtype=np.int32, keepdims=True)
    blocks[:, 2:4] = _half(d * total.astype(np.float32))


def _special_iq1_m(blocks: Blocks, factors: NDArray[np.float64], rng: np.random.Generator) -> None:
    """The half float is spread over the upper 4 bits of four words."""
    bits = factors[:, :1].astype(np.float16).view(np.uint16)
    words = np.ascontiguousarray(blocks[:, 48:56]).view("<u2") & 0x0FFF
    nibbles = bits >> np.array([0, 4, 8, 12], np.uint16) & 15
    blocks[:, 48:56] = _bytes((words | nibbles << np.uint16(12)).astype("<u2"))


def _special_tq2_0(blocks: Blocks, factors: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Only three of the four 2-bit codes are in use."""
    codes = rng.integers(0, 3, (len(blocks), 64, 4), dtype=np.uint8) << np.array([0, 2, 4, 6], np.uint8)
    blocks[:, :64] = codes.sum(axis=2, dtype=np.uint8)


def _special_tq1_0(blocks: Blocks, factors: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Bytes are ceil(number in base 3 * 256 / 243), so not all occur."""
    numbers = rng.integers(0, 243, (len(blocks), 52), dtype=np.uint16)
    blocks[:, :52] = ((numbers * 256 + 242) // 243).astype(np.uint8)


def _special_mxfp4(blocks: Blocks, factors: NDArray[np.float64], rng: np.random.Generator) -> None:
    """The exponent near that of the scale."""
    blocks[:, 0] = np.clip(np.round(np.log2(np.abs(factors[:, 0]))) + 128, 0, 254).astype(np.uint8)


def _special_nvfp4(blocks: Blocks, factors: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Four scales as unsigned E4M3, in the order of their codes; never 0 or the code for NaN."""
    codes = np.searchsorted(HALF_E4M3[:0x7F], np.abs(factors))
    blocks[:, :4] = np.clip(codes, 1, 0x7E).astype(np.uint8)


_SPECIAL: Final[dict[GGMLType, Callable[[Blocks, NDArray[np.float64], np.random.Generator], None]]] = {
    GGMLType.Q8_1: _special_q8_1,
    GGMLType.Q8_K: _special_q8_k,
    GGMLType.IQ1_M: _special_iq1_m,
    GGMLType.TQ1_0: _special_tq1_0,
    GGMLType.TQ2_0: _special_tq2_0,
    GGMLType.MXFP4: _special_mxfp4,
    GGMLType.NVFP4: _special_nvfp4,
}
