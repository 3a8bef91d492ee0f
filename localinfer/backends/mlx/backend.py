"""The MLX backend: Metal and CUDA over raw blocks, and mlx-cpu, a slow path that checks the model code.

All calls must come from one thread: MLX's streams belong to the thread that made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from localinfer.backends.base import DeviceInfo, PagingState, Progress
from localinfer.backends.mlx.device import MLXDevice, find_device, set_limits
from localinfer.backends.mlx.gpu_ops import GpuOps
from localinfer.backends.mlx.kv import MLXKV
from localinfer.backends.mlx.launch import CudaLauncher, Launcher, MetalLauncher
from localinfer.backends.mlx.load import Loaded, load_blocks
from localinfer.backends.mlx.ops import MLXOps
from localinfer.backends.mlx.paging import PagedDecoded, PagedGpuOps, PagedMLXOps, Windows
from localinfer.backends.mlx.weights import MLXWeight
from localinfer.errors import BackendError
from localinfer.formats.gguf import GGUFFile, TensorInfo
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig
from localinfer.models.decoder import Decoder
from localinfer.planner.paging import Paging

CPU_NOTICES = (
    "mlx-cpu is a slow path for checking; --backend cpu is the fast one here",
    "mlx-cpu: matrices are decoded to float32 in memory (a full copy of the model)",
)


class MLXBackend:
    """`launcher` and `device` replace what is found, for tests."""

    def __init__(self, launcher: Launcher | None = None, device: MLXDevice | None = None) -> None:
        self.device = device or find_device()
        self._launcher = launcher or _launcher(self.device)

    def device_info(self) -> DeviceInfo:
        d = self.device
        notices = CPU_NOTICES if self._launcher is None else ()
        return DeviceInfo("mlx", d.name, d.memory_bytes, 1, d.features, notices)

    def load(self, file: GGUFFile, config: ModelConfig, progress: Progress, paging: Paging | None = None) -> MLXModel:
        windows = Windows(file, paging) if paging else None
        if self._launcher is None:
            weights = {name: _decoded(file, info, windows) for name, info in file.tensors.items()}
            progress(1.0, "mapped")
            ops = PagedMLXOps(windows) if windows else MLXOps()
            return MLXModel(config, ops, Loaded(weights, 0, 0, CPU_NOTICES), windows)
        with device_errors("loading the weights"):
            loaded = load_blocks(file, self.device, progress, windows)
        set_limits(self.device, loaded.adopted_bytes)
        half = self.device.half
        gpu = PagedGpuOps(windows, self._launcher, half) if windows else GpuOps(self._launcher, half)
        return MLXModel(config, gpu, loaded, windows)

    def close(self) -> None:
        mx.clear_cache()


def _decoded(file: GGUFFile, info: TensorInfo, windows: Windows | None) -> MLXWeight:
    raw = file.raw(info)
    paged = windows is not None and windows.streams(info)
    return PagedDecoded(raw, info, windows) if windows and paged else MLXWeight(raw, info.type, info.shape)


def _launcher(device: MLXDevice) -> Launcher | None:
    """None on mlx-cpu, where kernels cannot run."""
    makers: dict[str, Callable[[], Launcher]] = {"metal": MetalLauncher, "cuda": CudaLauncher}
    return makers[device.target]() if device.target in makers else None


class MLXModel:
    scratch_bytes = 0  # MLX allocates per operation and keeps a bounded cache (device.CACHE_BYTES)

    def __init__(self, config: ModelConfig, ops: MLXOps, loaded: Loaded, windows: Windows | None = None) -> None:
        self.config = config
        self._windows = windows
        self.notices = loaded.notices
        self.adopted_bytes = loaded.adopted_bytes
        self._loaded: Loaded | None = loaded
        self._decoder: Decoder | None = Decoder(config, loaded.weights)
        self._ops = ops

    @property
    def copied_bytes(self) -> int:
        """Weights copied or decoded beside the mapped file."""
        return self._loaded.copied_now if self._loaded else 0

    @property
    def paging(self) -> PagingState | None:
        return self._windows.state() if self._windows else None

    def new_kv(self, spec: KVSpec) -> MLXKV:
        return MLXKV(spec, self._ops.encode_kv)

    def forward(self, ids: Sequence[int], kv: MLXKV, rows: int) -> np.ndarray:
        assert self._decoder is not None
        with device_errors("a forward pass"):
            logits = self._decoder.forward(self._ops, ids, kv.length, kv, rows)
            kv.length += len(ids)
            if logits is None:
                mx.eval(kv.arrays())
                return np.empty((0, self.config.n_vocab), np.float32)
            mx.eval(logits, kv.arrays())
            return np.array(logits, dtype=np.float32)

    def close(self) -> None:
        """Weights are let go once nothing on the device reads them, and with them the pages of the file."""
        mx.synchronize()
        self._decoder = self._loaded = None
        if self._windows:
            self._windows.release()
        mx.clear_cache()


@contextmanager
def device_errors(doing: str) -> Iterator[Any]:
    """MLX reports a lost command buffer or missing memory as RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        text = " ".join(str(error).split())
        memory = "memory" in text.lower()
        hint = (
            "use a smaller --ctx, --kv q8_0 or a smaller model" if memory else "run `localinfer doctor --gpu-selftest`"
        )
        raise BackendError(f"mlx: {doing} failed: {text}", hint) from error
