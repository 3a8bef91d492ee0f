"""Which device MLX computes on, and what is chosen by it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import mlx.core as mx

from localinfer.device import installed_bytes
from localinfer.errors import BackendError
from localinfer.units import GIB, MIB

Target = Literal["metal", "cuda", "cpu"]
# Half precision on every GPU is float16: M1 and M2 compute bfloat16 in software, and elsewhere its 8 bits cost accuracy
# (tiny models, host execution: logits off by 0.19 instead of 0.026). gpu_linear.py keeps products within its range.
HALF = mx.float16
OLDEST_MLX = (0, 32, 4)  # older ones may take an adopted buffer for their own and write into the file's pages
CACHE_BYTES = 512 * MIB  # freed buffers that MLX may keep: a chunk's activations, not gigabytes


@dataclass(frozen=True)
class MLXDevice:
    """`half` is the type of matrix-matrix products, of attention's inputs and of decoded matrices."""

    target: Target
    name: str
    memory_bytes: int  # that the device may use
    half: mx.Dtype
    features: tuple[str, ...] = ()

    @property
    def shares_memory(self) -> bool:
        """Mapped file pages can be adopted without a copy."""
        return self.target == "metal"


def find_device() -> MLXDevice:
    """The device of this MLX build. BackendError on an MLX, an NVIDIA card or a driver that is too old."""
    check_version(version("mlx"))
    if mx.metal.is_available():
        return metal_device(mx.device_info())
    if mx.cuda.is_available():
        from localinfer.backends.mlx.cuda_device import check_cuda

        card = check_cuda()
        return MLXDevice("cuda", card.name, card.free_bytes, HALF, (f"compute capability {card.capability}",))
    return MLXDevice("cpu", "mlx-cpu", installed_bytes(), mx.float32)


def check_version(found: str) -> None:
    """BackendError below OLDEST_MLX."""
    if tuple(int(part) for part in re.findall(r"\d+", found)[:3]) < OLDEST_MLX:
        needed = ".".join(map(str, OLDEST_MLX))
        raise BackendError(f"expected mlx {needed} or newer, found {found}", "pip install -U mlx")


def metal_device(info: dict[str, Any]) -> MLXDevice:
    """From mx.device_info(). Architectures are applegpu_g13 (M1) to g17 (M5) and a letter for the size."""
    architecture = str(info.get("architecture", ""))
    memory = int(info.get("max_recommended_working_set_size", 0)) or installed_bytes()
    return MLXDevice("metal", str(info.get("device_name", "Apple GPU")), memory, HALF, (architecture,))


def set_limits(device: MLXDevice, adopted_bytes: int) -> None:
    """MLX counts adopted file pages as its own memory: without room for them it waits after every operation.

    The wired limit is left alone: over a mapped file it would pin the whole file.
    """
    if device.target == "cpu":
        return
    mx.set_memory_limit(adopted_bytes + device.memory_bytes)
    mx.set_cache_limit(min(CACHE_BYTES, max(device.memory_bytes // 32, GIB // 16)))
