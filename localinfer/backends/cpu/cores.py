"""How many threads this process should compute with: cores it may use, not logical processors it can see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def default_threads() -> int:
    """Physical cores within affinity and cgroup quota; on Apple silicon the fast cores. At least 1."""
    if sys.platform == "darwin":
        return _sysctl("hw.perflevel0.physicalcpu") or _sysctl("hw.physicalcpu") or os.cpu_count() or 1
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = len({_core_of(cpu) for cpu in usable})
    return max(1, min(cores, _cgroup_cores() or cores))


def _core_of(cpu: int) -> tuple[str, str]:
    """(package, core); a processor of unknown topology counts as its own core."""
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return (folder / "physical_package_id").read_text(), (folder / "core_id").read_text()
    except OSError:
        return "", str(cpu)


def _cgroup_cores(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> int | None:
    """Whole cores that the CPU quota allows (rounded up), the tightest of all enclosing groups; None without one."""
    quotas = [q for folder in _cgroup_folders(root, proc) if (q := _quota(folder)) is not None]
    return max(1, -(-int(min(quotas) * 100) // 100)) if quotas else None


def _cgroup_folders(root: Path, proc: Path) -> list[Path]:
    """Version 2: the process's group and its parents. Version 1: the cpu controller's folder."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return []
    groups = [line.split(":", 2)[2] for line in lines if line.startswith("0::")]
    path = Path(groups[0].lstrip("/")) if groups else Path()
    return [root / p for p in (path, *path.parents)] + [root / "cpu"]


def _quota(folder: Path) -> float | None:
    """Processor seconds per second; None for no limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if quota.strip() != "max" and int(quota) > 0 else None
    except (OSError, ValueError):
        return None


def _sysctl(name: str) -> int:
    try:
        return int(subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0
