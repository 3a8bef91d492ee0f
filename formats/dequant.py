"""Reference decoders: ggml blocks -> float32, in numpy, one function a type. Every kernel is checked against these.

Letters: n blocks at a time. A decoder takes (n, block_bytes) uint8 and gives (n, block_values) float32. Multiplications
are in the order of ggml's own decoders, so results are equal to the last bit. Layouts: the `block_*` structs of
ggml-common.h and `dequantize_row_*` of ggml-quants.c, https://github.com/ggml-org/llama.cpp/tree/master/ggml/src
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from localinfer.errors import FormatError, UnsupportedModel
from localinfer.formats import dequant_iq
from localinfer.formats.block_fields import f16, i8, nibbles, planes
from localinfer.formats.ggml_types import GGMLType

Blocks = NDArray[np.uint8]
Values = NDArray[np.float32]

_CHUNK_VALUES = 2**20  # decoded at a time: temporaries stay at some 20 MB whatever the tensor's size


def dequantize(raw: memoryview | bytes | Blocks, kind: GGMLType, shape: Sequence[int]) -> Values:
    """A whole tensor as float32 in `shape` (..., out, in).

    UnsupportedModel for a type without decoder, FormatError where the bytes do not fit the shape.
    """
    decode = _decoder(kind)
    blocks = _as_blocks(raw, kind)
    out = np.empty(tuple(shape), np.float32)
    if kind.row_bytes(out.shape[-1] if out.ndim else 1) and out.size != blocks.shape[0] * kind.block_values:
        raise FormatError(
            f"{kind.name}: shape {tuple(shape)} takes {out.size // kind.block_values} blocks, found {blocks.shape[0]}"
        )
    flat = out.reshape(-1, kind.block_values)
    step = max(1, _CHUNK_VALUES // kind.block_values)
    for at in range(0, blocks.shape[0], step):
        flat[at : at + step] = decode(blocks[at : at + step])
    return out


def dequantize_rows(
    raw: memoryview | bytes | Blocks, kind: GGMLType, n_in: int, rows: Sequence[int] | slice | NDArray[np.integer]
) -> Values:
    """Some rows of a tensor with `n_in` values a row: (len(rows), n_in) float32. Reads no other row.

    IndexError for a row that is not there.
    """
    row_bytes = kind.row_bytes(n_in)
    table = _as_bytes(raw).reshape(-1, row_bytes)
    picked = table[rows if isinstance(rows, slice) else np.asarray(rows, np.intp)]
    return dequantize(picked, kind, (picked.shape[0], n_in))


def can_dequantize(kind: GGMLType) -> bool:
    """True where there is a decoder."""
    return kind in DECODERS


def _decoder(kind: GGMLType) -> Callable[[Blocks], Values]:
    if kind not in DECODERS:
        raise UnsupportedModel(
            f"tensor type {kind.name} has no decoder here", "another quantization of the same model will do"
        )
    return DECODERS[kind]


def _as_bytes(raw: memoryview | bytes | Blocks) -> Blocks:
    if isinstance(raw, np.ndarray):
        return np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
    return np.frombuffer(raw, np.uint8)


def _as_blocks(raw: memoryview | bytes | Blocks, kind: GGMLType) -> Blocks:
    data = _as_bytes(raw)
    if data.size % kind.block_bytes:
        raise FormatError(f"{kind.name}: expected a multiple of {kind.block_bytes} bytes, found {data.size}")
    return data.reshape(-1, kind.block_bytes)


# -- plain numbers ----------------------------------------------------------------------------------------------------


def _plain(dtype: str) -> Callable[[Blocks], Values]:
    def decode(blocks: Blocks) -> Values:
        return np.ascontiguousarray(blocks).view(dtype).astype(np.float32)

    return decode


def dequantize_bf16(blocks: Blocks) -> Values:
    """The upper half of a float32."""
    return (np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16).view(np.float32)


# -- 32 values with one scale -----------------------------------------------------------------------------------------


def dequantize_q4_0(blocks: Blocks) -> Values:
    """d f16, 16 bytes of nibbles; d * (q - 8)."""
    return f16(blocks, 0) * (nibbles(blocks[:, 2:18]).astype(np.float32) - 8)


def dequantize_q4_1(blocks: Blocks) -> Values:
    """d f16, m f16, 16 bytes of nibbles; d * q + m."""
    return f16(blocks, 0) * nibbles(blocks[:, 4:20]) + f16(blocks, 2)


def dequantize_q5_0(blocks: Blocks) -> Values:
    """d f16, 32 fifth bits, 16 bytes of nibbles; d * (q - 16)."""
    return f16(blocks, 0) * (_five_bits(blocks[:, 2:6], blocks[:, 6:22]).astype(np.float32) - 16)


def dequantize_q5_1(blocks: Blocks) -> Values:
    """d f16, m f16, 32 fifth bits, 16 bytes of nibbles; d * q + m."""
    return f16(blocks, 0) * _five_bits(blocks[:, 4:8], blocks[:, 8:24]) + f16(blocks, 2)


def _five_bits(high: Blocks, low: Blocks) -> Blocks:
    """(n, 4) bits and (n, 16) nibbles -> (n, 32) values 0..31."""
    return nibbles(low) | np.unpackbits(high, axis=1, bitorder="little") << np.uint8(4)


def dequantize_q8_0(blocks: Blocks) -> Values:
    """d f16, 32 int8; d * q."""
    return f16(blocks, 0) * i8(blocks[:, 2:34])


def dequantize_q8_1(blocks: Blocks) -> Values:
    """d f16, d * sum of q as f16 (not needed here), 32 int8; d * q."""
    return f16(blocks, 0) * i8(blocks[:, 4:36])


# -- K-quants: 256 values in sub-blocks, whose scales are quantized too -----------------------------------------------


def dequantize_q2_k(blocks: Blocks) -> Values:
    """16 bytes scale | min << 4, 64 bytes of 2-bit values, d f16, dmin f16; sub-blocks of 16."""
    scales = blocks[:, :16]
    d = f16(blocks, 80) * (scales & 15).astype(np.float32)
    m = f16(blocks, 82) * (scales >> 4).astype(np.float32)
    q = planes(blocks[:, 16:80], 32, 2).reshape(-1, 16, 16)
    return (d[..., None] * q - m[..., None]).reshape(-1, 256)


def dequantize_q3_k(blocks: Blocks) -> Values:
    """32 bytes of third bits, 64 bytes of 2-bit values, 12 bytes of 6-bit scales, d f16; sub-blocks of 16.

    A third bit that is not set takes 4 away.
    """
    low, high = blocks[:, 96:104], blocks[:, 104:108]
    scales = nibbles(low) | planes(high, 4, 2) << 4
    d = f16(blocks, 108) * (scales.astype(np.float32) - 32)
    q = planes(blocks[:, 32:96], 32, 2).astype(np.float32) - 4 * (planes(blocks[:, :32], 32, 1) ^ 1)
    return (d[..., None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


def dequantize_q4_k(blocks: Blocks) -> Values:
    """d f16, dmin f16, 12 bytes of 6-bit scales and mins, 128 bytes of nibbles; sub-blocks of 32."""
    d, m = _scales_and_mins(blocks)
    return (d * planes(blocks[:, 16:144], 32, 4).reshape(-1, 8, 32) - m).reshape(-1, 256)


def dequantize_q5_k(blocks: Blocks) -> Values:
    """As Q4_K, with 32 bytes of fifth bits before the nibbles."""
    d, m = _scales_and_mins(blocks)
    q = planes(blocks[:, 48:176], 32, 4) | planes(blocks[:, 16:48], 32, 1) << 4
    return (d * q.reshape(-1, 8, 32) - m).reshape(-1, 256)


def _scales_and_mins(blocks: Blocks) -> tuple[Values, Values]:
    """Scales and mins of the 8 sub-blocks of Q4_K and Q5_K, times d and dmin: two (n, 8, 1) float32.

    Of bytes 0..3, 4..7, 8..11: the low 6 bits of the first are scales 0..3, of the second mins 0..3; the third has the
    low 4 bits of scales 4..7 and, above them, of mins 4..7, whose upper 2 bits are on top of the first and second.
    """
    a, b, c = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([a & 63, (c & 15) | (a >> 6) << 4], axis=1)
    mins = np.concatenate([b & 63, (c >> 4) | (b >> 6) << 4], axis=1)
    return (f16(blocks, 0) * scales.astype(np.float32))[..., None], (f16(blocks, 2) * mins.astype(np.float32))[
        ..., None
    ]


def dequantize_q6_k(blocks: Blocks) -> Values:
    """128 bytes of low nibbles, 64 bytes of upper 2 bits, 16 int8 scales, d f16; sub-blocks of 16; d * (q - 32)."""
    q = planes(blocks[:, :128], 64, 4) | planes(blocks[:, 128:192], 32, 2) << 4
    d = f16(blocks, 208) * i8(blocks[:, 192:208])
    return (d[..., None] * (q.astype(np.float32) - 32).reshape(-1, 16, 16)).reshape(-1, 256)


def dequantize_q8_k(blocks: Blocks) -> Values:
    """d f32, 256 int8, 16 sums as int16 (not needed here); d * q."""
    d = np.ascontiguousarray(blocks[:, :4]).view("<f4")
    return d.astype(np.float32) * i8(blocks[:, 4:260])


# -- ternary ----------------------------------------------------------------------------------------------------------


def dequantize_tq1_0(blocks: Blocks) -> Values:
    """48 bytes of 5 ternary digits, 4 bytes of 4, d f16; d * (digit - 1).

    A byte is a fraction in base 3: digit k is the whole part of 3 * (byte * 3**k mod 256) / 256.
    """
    groups = [(blocks[:, :32], 5), (blocks[:, 32:48], 5), (blocks[:, 48:52], 4)]
    digits = [part * np.uint8(3**k) for part, n in groups for k in range(n)]  # uint8: wraps at 256
    q = np.concatenate(digits, axis=1).astype(np.uint16) * 3 >> 8
    return f16(blocks, 52) * (q.astype(np.float32) - 1)


def dequantize_tq2_0(blocks: Blocks) -> Values:
    """64 bytes of 2-bit values, d f16; d * (q - 1)."""
    return f16(blocks, 64) * (planes(blocks[:, :64], 32, 2).astype(np.float32) - 1)


# -- 4-bit floats -----------------------------------------------------------------------------------------------------

# E2M1 values, doubled so that they are whole numbers; the scales below are halved.
_FP4: Final = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def dequantize_mxfp4(blocks: Blocks) -> Values:
    """Exponent e as a byte, 16 bytes of nibbles; 2**(e - 128) * doubled E2M1."""
    e = blocks[:, :1].astype(np.uint32)
    half_scale = np.where(e < 2, np.uint32(0x200000) << (e & 1), (e - 1) << 23).view(np.float32)
    return half_scale * _FP4[nibbles(blocks[:, 1:17])]


def dequantize_nvfp4(blocks: Blocks) -> Values:
    """4 scales as unsigned E4M3 bytes, then 4 times 8 bytes of nibbles; sub-blocks of 16."""
    q = nibbles(blocks[:, 4:36].reshape(-1, 8)).reshape(-1, 4, 16)
    return (HALF_E4M3[blocks[:, :4]][..., None] * _FP4[q]).reshape(-1, 64)


def _half_e4m3() -> Values:
    """Half the value of each of the 256 unsigned E4M3 codes (bit 7 ignored); the code for NaN, 0x7F, counts as 0."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0)) / 2
    return np.where(code == 0x7F, 0, value).astype(np.float32)


HALF_E4M3: Final = _half_e4m3()


DECODERS: Final[dict[GGMLType, Callable[[Blocks], Values]]] = {
    GGMLType.F32: _plain("<f4"),
    GGMLType.F16: _plain("<f2"),
    GGMLType.BF16: dequantize_bf16,
    GGMLType.F64: _plain("<f8"),
    GGMLType.I8: _plain("i1"),
    GGMLType.I16: _plain("<i2"),
    GGMLType.I32: _plain("<i4"),
    GGMLType.I64: _plain("<i8"),
    GGMLType.Q4_0: dequantize_q4_0,
    GGMLType.Q4_1: dequantize_q4_1,
    GGMLType.Q5_0: dequantize_q5_0,
    GGMLType.Q5_1: dequantize_q5_1,
    GGMLType.Q8_0: dequantize_q8_0,
    GGMLType.Q8_1: dequantize_q8_1,
    GGMLType.Q2_K: dequantize_q2_k,
    GGMLType.Q3_K: dequantize_q3_k,
    GGMLType.Q4_K: dequantize_q4_k,
    GGMLType.Q5_K: dequantize_q5_k,
    GGMLType.Q6_K: dequantize_q6_k,
    GGMLType.Q8_K: dequantize_q8_k,
    GGMLType.IQ1_S: dequant_iq.dequantize_iq1_s,
    GGMLType.IQ1_M: dequant_iq.dequantize_iq1_m,
    GGMLType.IQ2_XXS: dequant_iq.dequantize_iq2_xxs,
    GGMLType.IQ2_XS: dequant_iq.dequantize_iq2_xs,
    GGMLType.IQ2_S: dequant_iq.dequantize_iq2_s,
    GGMLType.IQ3_XXS: dequant_iq.dequantize_iq3_xxs,
    GGMLType.IQ3_S: dequant_iq.dequantize_iq3_s,
    GGMLType.IQ4_NL: dequant_iq.dequantize_iq4_nl,
    GGMLType.IQ4_XS: dequant_iq.dequantize_iq4_xs,
    GGMLType.TQ1_0: dequantize_tq1_0,
    GGMLType.TQ2_0: dequantize_tq2_0,
    GGMLType.MXFP4: dequantize_mxfp4,
    GGMLType.NVFP4: dequantize_nvfp4,
}
