"""A tensor's bytes as an MLX array without copying them, where the device can share host memory (Metal).

The window runs from the page in which the tensor starts to its end; the array is a view into it. It is adopted as
uint32 words: MLX sizes command buffers by counting elements. One window a tensor, not one a file: what is resident, and
what can be released, follows the buffer. MLX holds the window, the window the map.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

PAGE = mmap.PAGESIZE
MAX_ELEMENTS = 2**31 - 1  # of one dimension of an MLX array
Importer = Callable[[np.ndarray], mx.array]


@dataclass(frozen=True)
class Adopted:
    """`words` starts at the tensor's first byte; it may end a few bytes after its last."""

    words: mx.array
    window_bytes: int  # shared with the map; 0 where bytes were copied
    copied_bytes: int
    reason: str = ""  # why they were copied


def share(window: np.ndarray) -> mx.array:
    """An array over the same memory. ValueError where MLX cannot; without copy=False it would copy in silence."""
    return mx.asarray(window, copy=False)


def adopt(mapped: mmap.mmap, offset: int, n_bytes: int, alignment: int, importer: Importer = share) -> Adopted:
    """The n_bytes at `offset` of a read-only map; copied, with the reason, where they cannot be shared."""
    width = 8 if n_bytes + PAGE > 4 * MAX_ELEMENTS else 4
    if offset % max(alignment, width):
        return _copied(mapped, offset, n_bytes, f"starts at byte {offset}, not a multiple of {max(alignment, width)}")
    base = offset // PAGE * PAGE
    length = -(-(offset + n_bytes) // width) * width - base
    if base + length > len(mapped):
        return _copied(mapped, offset, n_bytes, "the file ends within its last word")
    window = np.frombuffer(mapped, f"<u{width}", count=length // width, offset=base)
    try:
        words = importer(window)
    except ValueError as error:
        return _copied(mapped, offset, n_bytes, str(error))
    return Adopted(words[(offset - base) // width :], length, 0)


def _copied(mapped: mmap.mmap, offset: int, n_bytes: int, reason: str) -> Adopted:
    """A buffer of MLX's own with the tensor's bytes, padded to whole words."""
    raw = np.frombuffer(mapped, np.uint8, count=n_bytes, offset=offset)
    if n_bytes % 4:
        raw = np.concatenate([raw, np.zeros(-n_bytes % 4, np.uint8)])
    if offset % 4 or raw.size // 4 > MAX_ELEMENTS:  # a view needs aligned memory, a dimension an int32
        raw = raw.copy()
    width = 8 if raw.size // 4 > MAX_ELEMENTS and raw.size % 8 == 0 else 4
    return Adopted(mx.array(raw.view(f"<u{width}")), 0, n_bytes, reason)
