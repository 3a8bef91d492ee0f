"""Machines that people own, with the figures their makers publish, and where those stand.

Memory of Apple machines is counted in decimal GB as sold, which errs on the safe side by 7 %. What the GPU may use of
it (recommendedMaxWorkingSetSize) differs by macOS version, so it is read on the machine and never tabulated: here a
reserve stands in for it. NVIDIA's GB are binary. FLOPs are dense 16-bit with 32-bit accumulation (tensor cores) or
FP32 (Apple, where both run at one rate); None where the maker publishes none.
"""

from __future__ import annotations

from localinfer.errors import UsageError
from localinfer.planner.budget import MemoryBudget, Platform
from localinfer.records import dataclass
from localinfer.units import GB, GIB

APPLE_SPECS = "https://support.apple.com/specs"
METAL_BENCHMARKS = "https://github.com/philipturner/metal-benchmarks"
NVIDIA_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
NVIDIA_GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
NVIDIA_BLACKWELL = (
    "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf"
)
NVIDIA_PRO = "https://www.nvidia.com/en-us/products/workstations/professional-desktop-gpus/rtx-pro-6000/"
NVIDIA_DATA_CENTER = "https://www.nvidia.com/en-us/data-center/"

PCIE_4_X16 = 32e9  # bytes/s each way
PCIE_5_X16 = 64e9
TERA = 1e12


@dataclass(frozen=True)
class Device:
    """One model of machine or card; `bandwidth` and `link` in bytes/s."""

    name: str
    label: str
    platform: Platform
    memory_bytes: int
    bandwidth: float
    flops: float | None
    link: float | None
    source: str

    @property
    def default_reserve_bytes(self) -> int:
        """A quarter on Apple machines (macOS has kept back 16 to 33 %); 1 GiB on a card that also drives a screen."""
        return self.memory_bytes // 4 if self.platform == "metal" else GIB

    def budget(self, reserve_bytes: int | None = None, memory_bytes: int | None = None) -> MemoryBudget:
        """The device as a budget, with another reserve or memory where given."""
        memory = self.memory_bytes if memory_bytes is None else memory_bytes
        reserve = self.default_reserve_bytes if reserve_bytes is None else reserve_bytes
        return MemoryBudget(
            self.name, self.platform, memory, memory, reserve, self.source,
            bandwidth_bytes_s=self.bandwidth, flops=self.flops, link_bytes_s=self.link,
        )  # fmt: skip


#       chip         GB/s   TFLOP/s FP32 (all GPU cores)   sizes in GB
_APPLE: list[tuple[str, float, float | None, tuple[int, ...]]] = [
    ("m1", 68.25, 2.6, (8, 16)),
    ("m1-pro", 200, 5.3, (16, 32)),
    ("m1-max", 400, 10.6, (32, 64)),
    ("m1-ultra", 800, 21.2, (64, 128)),
    ("m2", 100, 3.6, (8, 16, 24)),
    ("m2-pro", 200, 6.8, (16, 32)),
    ("m2-max", 400, 13.6, (32, 64, 96)),
    ("m2-ultra", 800, 27.2, (64, 128, 192)),
    ("m3", 100, 3.6, (8, 16, 24)),
    ("m3-pro", 150, 6.4, (18, 36)),
    ("m3-max-30", 300, 10.7, (36, 96)),  # 30 GPU cores
    ("m3-max", 400, 14.3, (48, 64, 128)),  # 40 GPU cores
    ("m3-ultra", 819, 28.6, (96, 256, 512)),
    ("m4", 120, None, (16, 24, 32)),
    ("m4-pro", 273, None, (24, 48, 64)),
    ("m4-max-32", 410, None, (36,)),  # 32 GPU cores
    ("m4-max", 546, None, (48, 64, 128)),  # 40 GPU cores
    ("m5", 153, None, (16, 24, 32)),
    ("m5-pro", 307, None, (24, 48, 64)),
    ("m5-max", 614, None, (48, 64, 128)),  # 40 GPU cores
]

#       name            label                      GiB   GB/s  TFLOP/s   link        source
_NVIDIA: list[tuple[str, str, int, float, float | None, float, str]] = [
    ("rtx-pro-6000", "RTX PRO 6000 Blackwell", 96, 1792, 503.8, PCIE_5_X16, NVIDIA_PRO),
    ("rtx-5090", "GeForce RTX 5090", 32, 1792, 209.5, PCIE_5_X16, NVIDIA_BLACKWELL),
    ("rtx-5080", "GeForce RTX 5080", 16, 960, 112.6, PCIE_5_X16, NVIDIA_BLACKWELL),
    ("rtx-5070-ti", "GeForce RTX 5070 Ti", 16, 896, 87.9, PCIE_5_X16, NVIDIA_BLACKWELL),
    ("rtx-4090", "GeForce RTX 4090", 24, 1008, 165.2, PCIE_4_X16, NVIDIA_ADA),
    ("rtx-4080", "GeForce RTX 4080", 16, 716.8, 97.5, PCIE_4_X16, NVIDIA_ADA),
    ("rtx-6000-ada", "RTX 6000 Ada", 48, 960, None, PCIE_4_X16, NVIDIA_ADA),
    ("rtx-3090", "GeForce RTX 3090", 24, 936, 71.0, PCIE_4_X16, NVIDIA_GA102),
    ("rtx-3060", "GeForce RTX 3060", 12, 360, None, PCIE_4_X16, NVIDIA_GA102),
    ("a100-80gb", "A100 80 GB SXM", 80, 2039, 312.0, PCIE_4_X16, NVIDIA_DATA_CENTER + "a100/"),
    ("h100-80gb", "H100 SXM", 80, 3350, 989.4, PCIE_5_X16, NVIDIA_DATA_CENTER + "h100/"),
    ("h200-141gb", "H200 SXM", 141, 4800, 989.4, PCIE_5_X16, NVIDIA_DATA_CENTER + "h200/"),
]


def _apple_devices() -> list[Device]:
    return [
        Device(
            f"{chip}-{size}gb", f"Apple {_chip_label(chip)}, {size} GB", "metal", size * GB, speed * 1e9,
            tflops * TERA if tflops else None, None,
            f"{APPLE_SPECS}; FLOPs {METAL_BENCHMARKS}" if tflops else APPLE_SPECS,
        )
        for chip, speed, tflops, sizes in _APPLE
        for size in sizes
    ]  # fmt: skip


def _chip_label(chip: str) -> str:
    """m3-max-30 -> M3 Max (30 GPU cores)."""
    words = chip.split("-")
    cores = f" ({words.pop()} GPU cores)" if words[-1].isdigit() else ""
    return " ".join(w.capitalize() for w in words) + cores


def _nvidia_devices() -> list[Device]:
    return [
        Device(name, label, "cuda", size * GIB, speed * 1e9, tflops * TERA if tflops else None, link, source)
        for name, label, size, speed, tflops, link, source in _NVIDIA
    ]


DEVICES: dict[str, Device] = {d.name: d for d in (*_apple_devices(), *_nvidia_devices())}


def find_device(name: str) -> Device:
    """A device by its name (`m2-max-96gb`). UsageError with near names otherwise."""
    key = name.strip().lower().replace(" ", "-").replace("_", "-")
    if key in DEVICES:
        return DEVICES[key]
    from difflib import get_close_matches

    near = get_close_matches(key, DEVICES, n=3, cutoff=0.5) or [d for d in DEVICES if key in d][:3]
    hint = f"near: {', '.join(near)}; " if near else ""
    raise UsageError(f"device: no device named {name!r}", f"{hint}`localinfer fit --list-devices` lists all")
