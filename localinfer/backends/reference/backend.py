"""The numpy backend: the reference operations behind the same door as every device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localinfer.backends.base import DeviceInfo, Progress
from localinfer.backends.reference.kv import ReferenceKV
from localinfer.backends.reference.ops import ReferenceOps, ReferenceWeight
from localinfer.device import installed_bytes, processor_name
from localinfer.formats.gguf import GGUFFile
from localinfer.kv.spec import KVSpec
from localinfer.models.config import ModelConfig
from localinfer.models.decoder import Decoder
from localinfer.planner.paging import Paging

NOTICE = "numpy reference path: exact and slow (every weight is decoded at each use)"


class ReferenceBackend:
    def device_info(self) -> DeviceInfo:
        return DeviceInfo("reference", processor_name(), installed_bytes(), 1, (), (NOTICE,))

    def load(
        self, file: GGUFFile, config: ModelConfig, progress: Progress, paging: Paging | None = None
    ) -> ReferenceModel:
        """Numpy reads the mapped file: what stays in memory is up to the system."""
        weights = {n: ReferenceWeight(file.raw(i), i.type, i.shape) for n, i in file.tensors.items()}
        progress(1.0, "mapped")
        return ReferenceModel(config, weights)

    def close(self) -> None:
        """Nothing is held."""


class ReferenceModel:
    scratch_bytes = 0
    copied_bytes = 0
    notices = (NOTICE,)
    paging = None

    def __init__(self, config: ModelConfig, weights: dict[str, ReferenceWeight]) -> None:
        self.config = config
        self._decoder: Decoder | None = Decoder(config, weights)
        self._ops = ReferenceOps()

    def new_kv(self, spec: KVSpec) -> ReferenceKV:
        return ReferenceKV(spec)

    def forward(self, ids: Sequence[int], kv: ReferenceKV, rows: int) -> np.ndarray:
        assert self._decoder is not None
        logits = self._decoder.forward(self._ops, ids, kv.length, kv, rows)
        kv.length += len(ids)
        return np.empty((0, self.config.n_vocab), np.float32) if logits is None else logits

    def close(self) -> None:
        self._decoder = None
