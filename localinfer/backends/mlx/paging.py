"""Weights larger than memory on MLX: a layer's streamed tensors are opened before its first use of them and released
when the next layer begins, once what was computed with them is there.

MLX is lazy, so the point of release is an evaluation: the first matrix of a layer needs everything that the layers
before it gave, and when its input is evaluated, nothing reads their weights any more. On Metal a window of the map is
adopted (adopt.py) and let go again; on mlx-cpu matrices are decoded for as long as their layer runs. The pages of the
next layer are asked for meanwhile. Experts come and go with their layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from localinfer.backends.base import PagingState
from localinfer.backends.mlx.gpu_ops import GpuOps
from localinfer.backends.mlx.ops import MLXOps
from localinfer.backends.mlx.weights import BlockWeight, MLXWeight
from localinfer.formats.gguf import GGUFFile, TensorInfo
from localinfer.models.config import Activation, MoEConfig
from localinfer.models.ops import MoEWeights, Weight
from localinfer.planner.paging import Paging


class Windows:
    """What is open of the streamed tensors: those of one layer."""

    def __init__(self, file: GGUFFile, paging: Paging) -> None:
        self.most_bytes = 0  # that were open at the same time
        self.read_bytes = 0
        self._file = file
        self._layer = ""
        self._open: dict[str, Any] = {}
        self._by_layer: dict[str, list[TensorInfo]] = defaultdict(list)
        for name, info in file.tensors.items():
            if name in paging.streamed | paging.cached:  # a layer's experts, all together
                self._by_layer[layer_of(name)].append(info)
        layers = list(self._by_layer)
        self._next = dict(zip(layers, layers[1:] + layers[:1], strict=True))

    def streams(self, info: TensorInfo) -> bool:
        return info in self._by_layer.get(layer_of(info.name), ())

    def enter(self, layer: str, x: mx.array) -> None:
        """The layer whose weights multiply x begins: those of another one are released first."""
        if layer == self._layer:
            return
        if self._open:
            mx.eval(x)
            mx.synchronize()
            self.release()
        self._layer = layer

    def get(self, info: TensorInfo, make: Callable[[], Any]) -> Any:
        """The tensor's window, opened where it is not."""
        if info.name not in self._open:
            if not self._open:
                self._ask_for_next(layer_of(info.name))
            self._open[info.name] = make()
            self.read_bytes += info.n_bytes
            self.most_bytes = max(self.most_bytes, sum(self._file.tensors[name].n_bytes for name in self._open))
        return self._open[info.name]

    def state(self) -> PagingState:
        """The system reads the pages, so only what was opened is known."""
        return PagingState(read_bytes=self.read_bytes)

    def release(self) -> None:
        """Nothing on the device reads what is open any more: let go of it, and of its pages."""
        names = list(self._open)
        self._open.clear()
        mx.clear_cache()
        for name in names:
            self._file.forget(self._file.tensors[name])

    def _ask_for_next(self, layer: str) -> None:
        for info in self._by_layer[self._next[layer]]:
            self._file.will_need(info)


class PagedBlocks(BlockWeight):
    """Raw blocks in a window that comes and goes."""

    def __init__(self, raw: memoryview, info: TensorInfo, windows: Windows, adopt: Callable[[], mx.array]) -> None:
        self._raw = raw
        self.type = info.type
        self.shape = info.shape
        self.layer = layer_of(info.name)
        self.n_in = info.shape[-1]
        self.n_out = info.shape[-2] if len(info.shape) > 1 else 1
        self.decoded_bytes = 0
        self._info, self._windows, self._adopt = info, windows, adopt

    @property
    def words(self) -> mx.array:  # type: ignore[override]
        return self._windows.get(self._info, self._adopt)


class PagedDecoded(MLXWeight):
    """Decoded while its layer runs."""

    def __init__(self, raw: memoryview, info: TensorInfo, windows: Windows) -> None:
        super().__init__(raw, info.type, info.shape)
        self.layer = layer_of(info.name)
        self._info, self._windows = info, windows

    @property
    def dense(self) -> mx.array:
        return self._windows.get(self._info, self._decode)

    def _decode(self) -> mx.array:
        return mx.array(MLXWeight(self._raw, self.type, self.shape).dense)

    @property
    def dense_bytes(self) -> int:
        return 0  # beside the plan's buffers nothing stays


class _Turning:
    """Operations that say which layer begins before they multiply."""

    windows: Windows

    def linear(self, x: mx.array, w: Weight, bias: Weight | None = None) -> mx.array:
        self._enter(w, x)
        return super().linear(x, w, bias)  # type: ignore[misc]

    def head_linear(self, x: mx.array, w: Weight) -> mx.array:
        self._enter(w, x)
        return super().head_linear(x, w)  # type: ignore[misc]

    def moe(self, x: mx.array, w: MoEWeights, moe: MoEConfig, act: Activation) -> mx.array:
        self._enter(w.up, x)
        return super().moe(x, w, moe, act)  # type: ignore[misc]

    def _enter(self, w: Weight, x: mx.array) -> None:
        if layer := getattr(w, "layer", None):
            self.windows.enter(layer, x)


class PagedMLXOps(_Turning, MLXOps):
    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self.windows = windows


class PagedGpuOps(_Turning, GpuOps):
    def __init__(self, windows: Windows, launcher: Any, half: mx.Dtype) -> None:
        super().__init__(launcher, half)
        self.windows = windows


def layer_of(name: str) -> str:
    """`blk.3`, or the name of a tensor outside all layers."""
    return ".".join(name.split(".")[:2]) if name.startswith("blk.") else name
