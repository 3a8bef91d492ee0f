"""Fields that many block types share, as numpy arrays: half-float scales, signed bytes, packed small integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def f16(blocks: Bytes, at: int) -> NDArray[np.float32]:
    """The half float at byte `at` of each block: (n, 1) float32."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def u16(field: Bytes) -> NDArray[np.uint16]:
    """(n, 2k) bytes -> (n, k) little-endian uint16."""
    return np.ascontiguousarray(field).view("<u2").astype(np.uint16, copy=False)


def u32(field: Bytes) -> NDArray[np.uint32]:
    """(n, 4k) bytes -> (n, k) little-endian uint32."""
    return np.ascontiguousarray(field).view("<u4").astype(np.uint32, copy=False)


def i8(field: Bytes) -> NDArray[np.float32]:
    """Signed bytes as float32, same shape."""
    return np.ascontiguousarray(field).view(np.int8).astype(np.float32)


def nibbles(field: Bytes) -> Bytes:
    """(n, k) bytes -> (n, 2k): all low nibbles, then all high ones."""
    return np.concatenate([field & 15, field >> 4], axis=1)


def planes(field: Bytes, run: int, bits: int) -> Bytes:
    """Small integers stored in planes: (n, k) bytes -> (n, k * 8 / bits) values of `bits` bits.

    Each run of `run` bytes holds its lowest `bits` bits first (run values), then the next higher, and so on.
    """
    n = field.shape[0]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    values = field.reshape(n, -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)
    return values.reshape(n, -1)
