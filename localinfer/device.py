"""This machine: its memory and what limits it, as a MemoryBudget; and what this process takes of it.

Nothing here imports MLX. What a GPU may use is asked of the system itself: Metal by its C entry point, NVIDIA's driver
by nvidia-ml-py where that is installed. Every figure says where it comes from.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from localinfer.errors import UsageError
from localinfer.planner.budget import MemoryBudget
from localinfer.planner.devices import DEVICES, Device
from localinfer.planner.efficiency import MeasuredSpeed, load_speed
from localinfer.records import dataclass, replace
from localinfer.units import GIB, MIB

THIS = "this"


def this_budget(backend: str = "auto", reserve_bytes: int | None = None) -> MemoryBudget:
    """The memory that `backend` (auto, cpu, mlx, reference) may use here. Reserve in bytes; None: a default.

    auto: the GPU where MLX could use one, else the CPU. UsageError where memory cannot be read.
    """
    if sys.platform == "darwin":
        budget = _mac_budget("cpu" if backend in ("cpu", "reference") else "metal", reserve_bytes)
    else:
        gpu = _nvidia_budget(reserve_bytes) if backend in ("auto", "mlx") and mlx_uses_cuda() else None
        budget = gpu or _host_budget("mlx-cpu" if backend == "mlx" else "cpu", reserve_bytes)
    return _with_measured_speed(budget)


def measured_speed(platform_name: str) -> MeasuredSpeed:
    """What `bench` and answers measured here for a budget's platform."""
    from localinfer.planner.ledger import decode_speeds

    machine = machine_name()
    return replace(load_speed(machine, platform_name), answers=decode_speeds(machine, platform_name))


def _with_measured_speed(budget: MemoryBudget) -> MemoryBudget:
    """Bandwidth and FLOP/s as measured here, where nobody publishes them."""
    measured = load_speed(machine_name(), budget.platform)
    return MemoryBudget(
        **{
            **budget.__dict__,
            "bandwidth_bytes_s": budget.bandwidth_bytes_s or measured.bandwidth_bytes_s,
            "flops": budget.flops or measured.flops,
        }
    )


@cache
def machine_name() -> str:
    """One line that tells machines apart in the ledger: system, processor, cores, memory."""
    memory = installed_bytes()
    return f"{sys.platform}-{_architecture()} {processor_name()}, {os.cpu_count()} cores, {memory / GIB:.0f} GiB"


def _architecture() -> str:
    return os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "unknown")


@cache
def processor_name() -> str:
    """The processor as it calls itself, or the architecture."""
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or _architecture()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(names, "") or _architecture()


# -- memory of the host ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostMemory:
    """Bytes. `limit` is installed memory or a container's limit below it; `free` can be had without swapping."""

    installed: int
    limit: int
    free: int
    source: str


def linux_memory(root: Path = Path("/")) -> HostMemory | None:
    """From /proc/meminfo and the control groups (v1 and v2) that this process is in. None where there is no /proc."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    installed = fields["MemTotal"]
    free = fields.get("MemAvailable", fields.get("MemFree", 0))
    limit, source = installed, "/proc/meminfo"
    for folder, maximum, usage in _control_groups(root):
        most = _read_int(folder / maximum)
        if most is not None and most < limit:
            limit, source = most, f"control group limit {folder / maximum}"
        if most is not None and most < installed:
            used = (_read_int(folder / usage) or 0) - _file_cache_bytes(folder)
            free = min(free, max(0, most - used))
    return HostMemory(installed, limit, free, source)


def _control_groups(root: Path) -> list[tuple[Path, str, str]]:
    """Folders of this process's memory control groups, up to the top, with the names of their limit and usage files.

    Inside a container the path that /proc names may not exist below the mount: then only the top is there to read.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        folder = base / path.lstrip("/")
        for level in (folder, *folder.parents):
            if (level / names[0]).is_file():
                found.append((level, *names))
            if level == base:
                break
    return found


def _file_cache_bytes(folder: Path) -> int:
    """What a control group is charged for and gives back when asked: cached file pages."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    stat = dict(line.split() for line in lines if len(line.split()) == 2)
    return sum(int(stat.get(f"total_{key}", stat.get(key, 0))) for key in ("inactive_file", "active_file"))


def _read_int(path: Path) -> int | None:
    """The number in a file; None for `max` or where it cannot be read."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def installed_bytes() -> int:
    """Bytes of memory in this machine; 0 where the system does not say."""
    if sys.platform == "darwin":
        return int(_sysctl("hw.memsize") or 0)
    memory = linux_memory()
    return memory.installed if memory else _psutil_memory().installed


def _psutil_memory() -> HostMemory:
    import psutil

    memory = psutil.virtual_memory()
    return HostMemory(memory.total, memory.total, memory.available, "psutil")


def _host_budget(platform_name: str, reserve_bytes: int | None) -> MemoryBudget:
    memory = linux_memory() or _psutil_memory()
    reserve = min(GIB, memory.limit // 8) if reserve_bytes is None else reserve_bytes
    if memory.installed <= 0:
        raise UsageError("device: this machine's memory could not be read", "give it with --memory SIZE")
    assert platform_name in ("cpu", "mlx-cpu")
    return MemoryBudget(
        THIS, platform_name, memory.limit, memory.limit, reserve, f"{processor_name()}; {memory.source}",  # type: ignore[arg-type]
        free_bytes=memory.free,
    )  # fmt: skip


# -- macOS -------------------------------------------------------------------------------------------------------------


def _mac_budget(platform_name: str, reserve_bytes: int | None) -> MemoryBudget:
    """Installed memory, the GPU's ceiling as Metal says it, and what other programs leave."""
    memory = _psutil_memory()
    reserve = max(2 * GIB, min(8 * GIB, memory.installed // 8)) if reserve_bytes is None else reserve_bytes
    known = apple_device(processor_name(), memory.installed)
    usable, basis = memory.installed, "hw.memsize"
    if platform_name == "metal":
        usable, basis = _metal_ceiling(memory.installed)
    return MemoryBudget(
        THIS, "metal" if platform_name == "metal" else "cpu", memory.installed, usable, reserve,
        f"{processor_name()}; {basis}", free_bytes=memory.free,
        bandwidth_bytes_s=known.bandwidth if known else None, flops=known.flops if known else None,
    )  # fmt: skip


def _metal_ceiling(installed: int) -> tuple[int, str]:
    """What the GPU may use: Metal's own answer, else the limit set by sysctl, else three quarters (said so)."""
    recommended = recommended_working_set()
    if recommended:
        return recommended, "Metal recommendedMaxWorkingSetSize"
    limit_mb = int(_sysctl("iogpu.wired_limit_mb") or 0)
    if limit_mb:
        return limit_mb * MIB, "sysctl iogpu.wired_limit_mb"
    return installed * 3 // 4, "three quarters of memory, assumed: Metal did not answer"


def recommended_working_set() -> int:
    """MTLDevice.recommendedMaxWorkingSetSize in bytes, through the Objective-C runtime; 0 where there is no Metal.

    https://developer.apple.com/documentation/metal/mtldevice/recommendedmaxworkingsetsize
    """
    if sys.platform != "darwin":
        return 0
    import ctypes

    try:
        # a program that is not linked with CoreGraphics gets no default device before it is loaded
        ctypes.CDLL("/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics")
        metal = ctypes.CDLL("/System/Library/Frameworks/Metal.framework/Metal")
        objc = ctypes.CDLL("/usr/lib/libobjc.A.dylib")
        metal.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
        objc.sel_registerName.restype = ctypes.c_void_p
        send = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)(("objc_msgSend", objc))
        device = metal.MTLCreateSystemDefaultDevice()
        return int(send(device, objc.sel_registerName(b"recommendedMaxWorkingSetSize"))) if device else 0
    except (OSError, AttributeError):
        return 0


def apple_device(processor: str, installed: int) -> Device | None:
    """The tabulated machine for `Apple M2 Max` and its memory: for figures that the system does not tell."""
    chip = processor.lower().removeprefix("apple ").replace(" ", "-")
    size = round(installed / GIB)
    names = [name for name in DEVICES if name.startswith(f"{chip}-") and name.endswith(f"-{size}gb")]
    # `m3` also begins `m3-max-...`: the shortest name is the chip itself; a second bin has the core count in it
    return DEVICES[min(names, key=len)] if names else None


def _sysctl(name: str) -> str:
    import subprocess

    try:
        answer = subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip()


# -- NVIDIA ------------------------------------------------------------------------------------------------------------


def mlx_uses_cuda() -> bool:
    """Whether an MLX with CUDA is installed; it is not imported for that."""
    spec = find_spec("mlx")
    places = spec.submodule_search_locations if spec else None
    return any(next(Path(place).parent.glob("mlx_cuda*.dist-info"), None) for place in places or ())


def _nvidia_budget(reserve_bytes: int | None) -> MemoryBudget | None:
    """The first NVIDIA card, through nvidia-ml-py; None where there is none or the package is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        name = pynvml.nvmlDeviceGetName(handle)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    text = name.decode() if isinstance(name, bytes) else str(name)
    known = nvidia_device(text)
    reserve = GIB if reserve_bytes is None else reserve_bytes
    return MemoryBudget(
        THIS, "cuda", int(memory.total), int(memory.total), reserve, f"{text}; NVML", free_bytes=int(memory.free),
        bandwidth_bytes_s=known.bandwidth if known else None, flops=known.flops if known else None,
        link_bytes_s=known.link if known else None,
    )  # fmt: skip


def nvidia_device(name: str) -> Device | None:
    """The tabulated card for `NVIDIA GeForce RTX 4090`; the longest match wins (`5070 Ti` before `5070`)."""
    words = name.lower().replace("nvidia", "").replace("geforce", "").split()
    slug = "-".join(words)
    matches = [d for d in DEVICES.values() if d.platform == "cuda" and _names_card(d.name, slug)]
    return max(matches, key=lambda d: len(d.name), default=None)


def _names_card(device: str, slug: str) -> bool:
    stem = device.removesuffix("gb").rstrip("0123456789").rstrip("-") if device.endswith("gb") else device
    return slug == stem or (slug.startswith(f"{stem}-") and not slug.startswith((f"{stem}-ti", f"{stem}-super")))


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# -- this process ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProcessMemory:
    """Resident bytes of this process. `file` are mapped file pages (weights, libraries): the system may drop them."""

    anonymous: int
    file: int
    shared: int
    peak: int  # the largest sum so far

    @property
    def resident(self) -> int:
        return self.anonymous + self.file + self.shared


def process_memory(status: Path = Path("/proc/self/status")) -> ProcessMemory:
    """What this process holds now. Where the system does not split it (macOS), all of it counts as anonymous."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return _psutil_process_memory()
    fields = {name: rest.split()[0] for name, _, rest in (line.partition(":") for line in lines) if rest.strip()}
    kib = {key: int(fields.get(key, 0)) * 1024 for key in ("RssAnon", "RssFile", "RssShmem", "VmHWM")}
    return ProcessMemory(kib["RssAnon"], kib["RssFile"], kib["RssShmem"], kib["VmHWM"])


def _psutil_process_memory() -> ProcessMemory:
    import psutil

    info = psutil.Process().memory_info()
    return ProcessMemory(info.rss, 0, 0, getattr(info, "peak_wset", info.rss))


class MemoryWatch:
    """Follows the largest anonymous and file-backed size while it is open: the kernel keeps only their sum's peak.

    with MemoryWatch() as watch: ...; watch.peak.anonymous
    """

    def __init__(self, interval_s: float = 0.02) -> None:
        import threading

        self.peak = process_memory()
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self.sample()

    def sample(self) -> None:
        """Look now; cheap enough between two steps."""
        now, old = process_memory(), self.peak
        self.peak = ProcessMemory(
            max(now.anonymous, old.anonymous), max(now.file, old.file), max(now.shared, old.shared),
            max(now.peak, old.peak),
        )  # fmt: skip

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.sample()
