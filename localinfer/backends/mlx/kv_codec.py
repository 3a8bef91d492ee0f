"""Keys and values -> the bytes of a KV type, and back, in MLX operations: mlx-cpu's way, and the kernels' yardstick.

Block types are stored as uint16 words, since their blocks are an even number of bytes. Rounding is ggml's, to the bit.
"""

from __future__ import annotations

import mlx.core as mx

from localinfer.kv.spec import kv_row_bytes

FLOAT_TYPES = {"f32": mx.float32, "f16": mx.float16}


def row_elements(kv_type: str, d: int) -> int:
    """Elements of the stored dtype in a row of d values."""
    return d if kv_type in FLOAT_TYPES else kv_row_bytes(kv_type, d) // 2


def stored_dtype(kv_type: str) -> mx.Dtype:
    return FLOAT_TYPES.get(kv_type, mx.uint16)


def encode(x: mx.array, kv_type: str) -> mx.array:
    """(..., D) float32 -> (..., row_elements)."""
    if kv_type in FLOAT_TYPES:
        return x.astype(FLOAT_TYPES[kv_type])
    values = x.astype(mx.float32).reshape(-1, 32)
    scale, quants = _q8_0(values) if kv_type == "q8_0" else _q4_0(values)
    half = scale.astype(mx.float16).view(mx.uint8)  # (n, 2)
    return mx.concatenate([half, quants], axis=1).reshape(*x.shape[:-1], -1).view(mx.uint16)


def decode(stored: mx.array, kv_type: str, d: int) -> mx.array:
    """(..., row_elements) -> (..., D): float32 of block types, floats as they are."""
    if kv_type in FLOAT_TYPES:
        return stored
    n_bytes = 34 if kv_type == "q8_0" else 18
    blocks = mx.contiguous(stored).view(mx.uint8).reshape(-1, n_bytes)
    scale = mx.contiguous(blocks[:, :2]).view(mx.float16).astype(mx.float32)
    quants = mx.contiguous(blocks[:, 2:])
    if kv_type == "q8_0":
        values = quants.view(mx.int8).astype(mx.float32)
    else:
        values = mx.concatenate([quants & 15, quants >> 4], axis=1).astype(mx.float32) - 8.0
    return (scale * values).reshape(*stored.shape[:-1], d)


def _q8_0(x: mx.array) -> tuple[mx.array, mx.array]:
    """d = max |x| / 127; x / d rounded, halves away from zero."""
    d = mx.abs(x).max(axis=1, keepdims=True) / 127.0
    y = x * _inverse(d)
    size = mx.abs(y)
    whole = mx.floor(size)
    steps = whole + (size - whole >= 0.5).astype(mx.float32)
    return d, mx.where(y < 0, -steps, steps).astype(mx.int8).view(mx.uint8)


def _q4_0(x: mx.array) -> tuple[mx.array, mx.array]:
    """d = (the value of largest size) / -8; trunc(x / d + 8.5), at most 15."""
    largest = mx.take_along_axis(x, mx.argmax(mx.abs(x), axis=1, keepdims=True), axis=1)
    d = largest / -8.0
    q = mx.clip(mx.floor(mx.maximum(x * _inverse(d) + 8.5, 0.0)), 0.0, 15.0).astype(mx.uint8)
    return d, q[:, :16] | (q[:, 16:] << 4)


def _inverse(d: mx.array) -> mx.array:
    """1 / d; 0 where d is 0 or its inverse infinite."""
    inverse = 1.0 / d
    return mx.where(mx.abs(inverse) < 3.0e38, inverse, 0.0)
