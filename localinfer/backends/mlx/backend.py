"""The MLX backend: the same decoder on MLX arrays. On Linux this is mlx-cpu, a slow path for checking."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import psutil

from localinfer.backends.base import DeviceInfo, Progress
from localinfer.backends.mlx.kv import MLXKV
from localinfer.backends.mlx.ops import MLXOps
from localinfer.backends.mlx.weights import MLXWeight
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig
from localinfer.models.decoder import Decoder

NOTICES = (
    "mlx: matrices are decoded to float32 in memory (a full copy of the model)",
    "mlx-cpu is a slow path for checking; --backend cpu is the fast one here",
)


class MLXBackend:
    def device_info(self) -> DeviceInfo:
        gpu = mx.default_device().type == mx.DeviceType.gpu
        name = str(mx.device_info().get("device_name", "mlx")) if gpu else "mlx-cpu"
        return DeviceInfo("mlx", name, psutil.virtual_memory().total, 1, (), NOTICES[: 1 if gpu else 2])

    def load(self, file: GGUFFile, config: ModelConfig, progress: Progress) -> MLXModel:
        weights = {n: MLXWeight(file.raw(i), i.type, i.shape) for n, i in file.tensors.items()}
        progress(1.0, "mapped")
        return MLXModel(config, weights, self.device_info().notices)

    def close(self) -> None:
        mx.clear_cache()


class MLXModel:
    scratch_bytes = 0

    def __init__(self, config: ModelConfig, weights: dict[str, MLXWeight], notices: tuple[str, ...]) -> None:
        self.config = config
        self.notices = notices
        self.copied_bytes = sum(w.dense_bytes for w in weights.values())
        self._decoder: Decoder | None = Decoder(config, weights)
        self._ops = MLXOps()

    def new_kv(self, spec: KVSpec) -> MLXKV:
        return MLXKV(spec)

    def forward(self, ids: Sequence[int], kv: MLXKV, rows: int) -> np.ndarray:
        assert self._decoder is not None
        logits = self._decoder.forward(self._ops, ids, kv.length, kv, rows)
        kv.length += len(ids)
        if logits is None:
            mx.eval(kv.arrays())
            return np.empty((0, self.config.n_vocab), np.float32)
        mx.eval(logits, kv.arrays())
        return np.array(logits, dtype=np.float32)

    def close(self) -> None:
        self._decoder = None
