"""Reference decoders of the IQ types: values are looked up in small tables, groups of 8 or 4 in grids of chosen points.

Same letters and conventions as dequant.py; the grids are in iq_grids.py.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from localinfer.formats.block_fields import f16, nibbles, u16, u32
from localinfer.formats.iq_grids import IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID

Blocks = NDArray[np.uint8]
Values = NDArray[np.float32]

# The 16 levels of IQ4_NL and IQ4_XS: kvalues_iq4nl in ggml-common.h.
IQ4_LEVELS: Final = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)  # fmt: skip
_DELTA: Final = np.float32(0.125)  # IQ1S_DELTA, IQ1M_DELTA


def _signs(bits: NDArray[np.integer]) -> Values:
    """(..., ) bytes of 8 sign bits -> (..., 8) of +1 and -1; the lowest bit belongs to the first value."""
    shifts = np.arange(8, dtype=np.uint8)
    return 1 - 2 * (bits[..., None].astype(np.uint8) >> shifts & 1).astype(np.float32)


def _even_signs() -> NDArray[np.uint8]:
    """128 sign bytes: 7 bits as they are, the eighth makes the number of minus signs even."""
    seven = np.arange(128, dtype=np.uint8)
    parity = np.unpackbits(seven[:, None], axis=1).sum(axis=1).astype(np.uint8) & 1
    return seven | parity << 7


_EVEN_SIGNS: Final = _even_signs()
_SEVENS: Final = np.array([0, 7, 14, 21], np.uint32)


def dequantize_iq4_nl(blocks: Blocks) -> Values:
    """d f16, 16 bytes of nibbles; d * level."""
    return f16(blocks, 0) * IQ4_LEVELS[nibbles(blocks[:, 2:18])]


def dequantize_iq4_xs(blocks: Blocks) -> Values:
    """d f16, uint16 of upper 2 scale bits, 4 bytes of lower 4, 128 bytes of nibbles; sub-blocks of 32."""
    low = (blocks[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15).reshape(-1, 8)
    high = (u16(blocks[:, 2:4]) >> np.arange(0, 16, 2, dtype=np.uint16) & 3).astype(np.uint8)
    d = f16(blocks, 0) * ((low | high << 4).astype(np.float32) - 32)
    levels = IQ4_LEVELS[nibbles(blocks[:, 8:136].reshape(-1, 16))].reshape(-1, 8, 32)
    return (d[..., None] * levels).reshape(-1, 256)


def _packed_signs_and_scale(words: NDArray[np.uint32]) -> tuple[Values, Values]:
    """(n, 8) words of four 7-bit sign codes and a 4-bit scale -> signs (n, 8, 4, 8), scale + 1/2 (n, 8)."""
    codes = words[..., None] >> _SEVENS & 127
    return _signs(_EVEN_SIGNS[codes]), np.float32(0.5) + (words >> 28).astype(np.float32)


def dequantize_iq2_xxs(blocks: Blocks) -> Values:
    """d f16, then 8 times 4 grid indices and a word of signs and scale; sub-blocks of 32."""
    groups = blocks[:, 2:66].reshape(-1, 8, 8)
    signs, scale = _packed_signs_and_scale(u32(groups[..., 4:].reshape(-1, 32)))
    d = f16(blocks, 0) * scale * np.float32(0.25)
    return (d[..., None, None] * IQ2_XXS_GRID[groups[..., :4]] * signs).reshape(-1, 256)


def _nibble_scales(field: Blocks) -> NDArray[np.uint8]:
    """(n, k) bytes -> (n, 2k): low and high nibble of each byte in turn."""
    return (field[..., None] >> np.array([0, 4], np.uint8) & np.uint8(15)).reshape(field.shape[0], -1)


def dequantize_iq2_xs(blocks: Blocks) -> Values:
    """d f16, 32 uint16 of a 9-bit grid index and a 7-bit sign code, 8 bytes of 4-bit scales; sub-blocks of 16."""
    codes = u16(blocks[:, 2:66])
    d = f16(blocks, 0) * (np.float32(0.5) + _nibble_scales(blocks[:, 66:74])) * np.float32(0.25)
    values = IQ2_XS_GRID[codes & 511] * _signs(_EVEN_SIGNS[codes >> 9])
    return (d[..., None] * values.reshape(-1, 16, 16)).reshape(-1, 256)


def dequantize_iq2_s(blocks: Blocks) -> Values:
    """d f16, 32 low index bytes, 32 sign bytes, 8 bytes of upper 2 index bits, 8 bytes of scales; sub-blocks of 16."""
    high = (blocks[:, 66:74, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(-1, 32)
    index = blocks[:, 2:34].astype(np.uint16) | high.astype(np.uint16) << 8
    d = f16(blocks, 0) * (np.float32(0.5) + _nibble_scales(blocks[:, 74:82])) * np.float32(0.25)
    values = IQ2_S_GRID[index] * _signs(blocks[:, 34:66])
    return (d[..., None] * values.reshape(-1, 16, 16)).reshape(-1, 256)


def dequantize_iq3_xxs(blocks: Blocks) -> Values:
    """d f16, 64 grid indices (4 values each), 8 words of signs and scale; sub-blocks of 32."""
    signs, scale = _packed_signs_and_scale(u32(blocks[:, 66:98]))
    d = f16(blocks, 0) * scale * np.float32(0.5)
    values = IQ3_XXS_GRID[blocks[:, 2:66]].reshape(-1, 8, 4, 8)
    return (d[..., None, None] * values * signs).reshape(-1, 256)


def dequantize_iq3_s(blocks: Blocks) -> Values:
    """d f16, 64 low index bytes, 8 bytes of ninth index bits, 32 sign bytes, 4 bytes of scales; sub-blocks of 32."""
    ninth = np.unpackbits(blocks[:, 66:74], axis=1, bitorder="little").astype(np.uint16)
    values = IQ3_S_GRID[blocks[:, 2:66] | ninth << 8].reshape(-1, 32, 8) * _signs(blocks[:, 74:106])
    d = f16(blocks, 0) * (1 + 2 * _nibble_scales(blocks[:, 106:110]))
    return (d[..., None] * values.reshape(-1, 8, 32)).reshape(-1, 256)


def dequantize_iq1_s(blocks: Blocks) -> Values:
    """d f16, 32 low index bytes, 8 uint16 (4 times 3 upper index bits, 3 of scale, sign of delta); sub-blocks of 32."""
    words = u16(blocks[:, 34:50])
    d = f16(blocks, 0) * (2 * (words >> 12 & 7) + 1)
    delta = np.where(words & 0x8000, -_DELTA, _DELTA)
    high = (words[..., None] >> np.array([0, 3, 6, 9], np.uint16) & 7).reshape(-1, 32)
    values = IQ1_GRID[blocks[:, 2:34] | high << 8].reshape(-1, 8, 32)
    return (d[..., None] * (values + delta[..., None])).reshape(-1, 256)


def dequantize_iq1_m(blocks: Blocks) -> Values:
    """32 low index bytes, 16 bytes of nibbles (3 upper index bits, sign of delta), 4 uint16 of 3-bit scales.

    The upper 4 bits of those words, lowest nibble first, make up the half float d. Sub-blocks of 16; delta per 8.
    """
    words = u16(blocks[:, 48:56])
    d_bits = (words >> 12 << np.array([0, 4, 8, 12], np.uint16)).sum(axis=1, keepdims=True, dtype=np.uint16)
    scales = (words[..., None] >> np.array([0, 3, 6, 9], np.uint16) & 7).reshape(-1, 16)
    d = d_bits.view(np.float16).astype(np.float32) * (2 * scales + 1)
    high = _nibble_scales(blocks[:, 32:48]).astype(np.uint16)
    delta = np.where(high & 8, -_DELTA, _DELTA)
    values = IQ1_GRID[blocks[:, :32] | (high & 7) << 8] + delta[..., None]
    return (d[..., None] * values.reshape(-1, 16, 16)).reshape(-1, 256)
