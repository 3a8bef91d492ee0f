"""A GGUF file's tensors -> weights for a GPU: blocks adopted from the map (Metal) or copied once as they are (CUDA)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from math import prod
from mmap import mmap
from typing import Any

import mlx.core as mx

from localinfer.backends.base import Progress
from localinfer.backends.mlx.adopt import adopt
from localinfer.backends.mlx.device import MLXDevice
from localinfer.backends.mlx.kernels import BLOCKS, has_kernel
from localinfer.backends.mlx.paging import PagedBlocks, Windows
from localinfer.backends.mlx.weights import BlockWeight, DenseWeight, MLXWeight
from localinfer.formats.gguf import GGUFFile, TensorInfo
from localinfer.units import GIB, format_bytes

SMALLEST_BYTES = 32  # of a matrix used as blocks: MLX passes arrays of fewer than 8 elements in another address space
TOUCH_BYTES = 4 * GIB  # made resident by one command buffer: far less than trips the GPU's watchdog


@dataclass(frozen=True)
class Loaded:
    """`weights` by GGUF name. Notices name every copy of more than a vector, and why it was made."""

    weights: dict[str, Any]
    adopted_bytes: int  # windows shared with the map
    copied_bytes: int  # at load
    notices: tuple[str, ...]

    @property
    def copied_now(self) -> int:
        """With what was decoded at first use."""
        late = sum(w.dense_bytes for w in self.weights.values() if isinstance(w, MLXWeight))
        return (
            self.copied_bytes + late + sum(w.decoded_bytes for w in self.weights.values() if isinstance(w, BlockWeight))
        )


def load_blocks(file: GGUFFile, device: MLXDevice, progress: Progress, windows: Windows | None = None) -> Loaded:
    """Every tensor once; touched in batches, so that no single command buffer has to map the whole file. Those that
    `windows` streams are left where they are until their layer runs."""
    weights: dict[str, Any] = {}
    adopted = copied = done = 0
    reasons: Counter[str] = Counter()
    batch: list[mx.array] = []
    batch_bytes = 0
    for name, info in file.tensors.items():
        if windows and windows.streams(info) and _as_blocks(info):
            weights[name] = PagedBlocks(file.raw(info), info, windows, partial(_window, file, info))
            continue
        weight, window, copy, reason = _load(file, info, device)
        weights[name] = weight
        adopted, copied, done = adopted + window, copied + copy, done + info.n_bytes
        if reason:
            reasons[reason] += copy
        if isinstance(weight, BlockWeight):
            batch.append(weight.words)
            batch_bytes += info.n_bytes
        if batch_bytes >= TOUCH_BYTES:
            _touch(batch)
            batch, batch_bytes = [], 0
        progress(done / max(1, file.tensor_bytes), "loading weights")
    _touch(batch)
    return Loaded(weights, adopted, copied, tuple(_notices(reasons, device)))


def _as_blocks(info: TensorInfo) -> bool:
    """Do kernels multiply from its blocks?"""
    return len(info.shape) > 1 and info.n_bytes >= SMALLEST_BYTES and has_kernel(info.type, info.shape[-1])


def _window(file: GGUFFile, info: TensorInfo) -> mx.array:
    raw = file.raw(info)
    assert isinstance(raw.obj, mmap)  # raw() is a slice of the file's map
    return adopt(raw.obj, info.offset, info.n_bytes, BLOCKS[info.type].alignment).words


def _load(file: GGUFFile, info: TensorInfo, device: MLXDevice) -> tuple[Any, int, int, str]:
    """The weight, bytes of its window, bytes copied, and why (empty where copies are the rule)."""
    raw = file.raw(info)
    if len(info.shape) < 2:
        vector = DenseWeight(raw, info.type, info.shape, mx.float32)
        return vector, 0, vector.decoded_bytes, ""
    if info.n_bytes < SMALLEST_BYTES:
        return DenseWeight(raw, info.type, info.shape, device.half), 0, 4 * prod(info.shape), ""
    if not has_kernel(info.type, info.shape[-1]):
        dense = DenseWeight(raw, info.type, info.shape, device.half)
        return dense, 0, dense.decoded_bytes, f"{info.type.name} with rows of {info.shape[-1]} has no kernel here"
    assert isinstance(raw.obj, mmap)  # raw() is a slice of the file's map
    found = adopt(raw.obj, info.offset, info.n_bytes, BLOCKS[info.type].alignment)
    reason = found.reason if device.shares_memory else ""
    return BlockWeight(raw, info.type, info.shape, found), found.window_bytes, found.copied_bytes, reason


def _touch(arrays: list[mx.array]) -> None:
    """One small read of each buffer: the device makes a buffer resident as a whole."""
    if arrays:
        mx.eval([a[:1] + 0 for a in arrays])


def _notices(reasons: Counter[str], device: MLXDevice) -> list[str]:
    where = "mlx on Metal" if device.target == "metal" else f"mlx on {device.target}"
    return [f"{where}: {format_bytes(n)} of weights copied: {reason}" for reason, n in sorted(reasons.items())]
