"""This machine's memory from made-up system files, and this process's memory from a real one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localinfer import device
from localinfer.device import (
    MemoryWatch,
    apple_device,
    linux_memory,
    machine_name,
    nvidia_device,
    process_memory,
    this_budget,
)
from localinfer.planner.efficiency import record_speed
from localinfer.units import GIB, MIB

MEMINFO = """MemTotal:       16777216 kB
MemFree:         1048576 kB
MemAvailable:    8388608 kB
Buffers:           10240 kB
HugePages_Total:       0
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_plain_linux(tmp_path):
    memory = linux_memory(write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n"}))
    assert (memory.installed, memory.limit, memory.free) == (16 * GIB, 16 * GIB, 8 * GIB)
    assert memory.source == "/proc/meminfo"


def test_cgroup_v2_takes_the_tightest_level(tmp_path):
    group = "sys/fs/cgroup"
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/outer/inner\n",
        f"{group}/outer/memory.max": f"{4 * GIB}\n",
        f"{group}/outer/memory.current": f"{3 * GIB}\n",
        f"{group}/outer/memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file {512 * MIB}\n",
        f"{group}/outer/inner/memory.max": "max\n",
        f"{group}/outer/inner/memory.current": "77\n",
    }
    memory = linux_memory(write(tmp_path, files))
    assert (memory.installed, memory.limit) == (16 * GIB, 4 * GIB)
    assert memory.free == 4 * GIB - (3 * GIB - 1536 * MIB)  # cached file pages are given back
    assert "outer/memory.max" in memory.source


def test_cgroup_v1(tmp_path):
    group = "sys/fs/cgroup/memory"
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "8:pids:/\n4:cpu,memory:/job\n0::/\n",
        f"{group}/memory.limit_in_bytes": "9223372036854771712\n",
        f"{group}/job/memory.limit_in_bytes": f"{2 * GIB}\n",
        f"{group}/job/memory.usage_in_bytes": f"{GIB}\n",
        f"{group}/job/memory.stat": "inactive_file 5\ntotal_inactive_file 0\ntotal_active_file 0\n",
    }
    memory = linux_memory(write(tmp_path, files))
    assert (memory.limit, memory.free) == (2 * GIB, GIB)


def test_inside_a_container_only_the_top_is_there(tmp_path):
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/docker/abc\n",
        "sys/fs/cgroup/memory.max": f"{GIB}\n",
        "sys/fs/cgroup/memory.current": f"{GIB // 4}\n",
    }
    memory = linux_memory(write(tmp_path, files))
    assert (memory.limit, memory.free) == (GIB, GIB - GIB // 4)


def test_no_proc_no_answer(tmp_path):
    assert linux_memory(tmp_path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine():
    budget = this_budget("cpu")
    assert budget.name == "this" and budget.platform == "cpu"
    assert 0 < budget.budget_bytes <= budget.usable_bytes <= budget.memory_bytes
    assert 0 <= budget.free_bytes <= budget.memory_bytes
    assert this_budget("cpu", 7).reserve_bytes == 7
    assert this_budget("mlx").platform in ("mlx-cpu", "cuda")
    assert "/proc/meminfo" in budget.source or "control group" in budget.source


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac's bandwidth is tabulated")
def test_bandwidth_is_what_bench_measured():
    assert this_budget("cpu").bandwidth_bytes_s is None
    record_speed(machine_name(), "cpu", when="2026-01-01", bandwidth_bytes_s=3e10, flops=1e11)
    assert (this_budget("cpu").bandwidth_bytes_s, this_budget("cpu").flops) == (3e10, 1e11)


def test_mac_budget_says_its_basis(monkeypatch):
    """Metal's answer, else the limit that was set, else an assumption that is called one."""
    answers = {"machdep.cpu.brand_string": "Apple M2 Max", "iogpu.wired_limit_mb": "0"}
    monkeypatch.setattr(device, "_sysctl", lambda name: answers.get(name, ""))
    monkeypatch.setattr(device, "processor_name", lambda: "Apple M2 Max")
    monkeypatch.setattr(device, "_psutil_memory", lambda: device.HostMemory(96 * GIB, 96 * GIB, 40 * GIB, "psutil"))
    monkeypatch.setattr(device, "recommended_working_set", lambda: 72 * GIB)
    budget = device._mac_budget("metal", None)
    assert (budget.usable_bytes, budget.memory_bytes, budget.free_bytes) == (72 * GIB, 96 * GIB, 40 * GIB)
    assert "recommendedMaxWorkingSetSize" in budget.source and budget.bandwidth_bytes_s == 400e9
    monkeypatch.setattr(device, "recommended_working_set", lambda: 0)
    assert "assumed" in device._mac_budget("metal", None).source
    answers["iogpu.wired_limit_mb"] = "90000"
    assert device._mac_budget("metal", 0).usable_bytes == 90000 * MIB
    assert device._mac_budget("cpu", 0).usable_bytes == 96 * GIB


@pytest.mark.skipif(sys.platform == "darwin", reason="there is Metal")
def test_no_metal_here():
    assert device.recommended_working_set() == 0


@pytest.mark.parametrize(
    ("processor", "gib", "name"),
    [
        ("Apple M2 Max", 96, "m2-max-96gb"),
        ("Apple M3", 16, "m3-16gb"),
        ("Apple M3 Max", 36, "m3-max-30-36gb"),
        ("Apple M3 Max", 128, "m3-max-128gb"),
        ("Apple M1 Ultra", 64, "m1-ultra-64gb"),
        ("Apple M9", 64, None),
        ("Intel(R) Core(TM) i7", 16, None),
    ],
)
def test_apple_machines_by_their_own_name(processor, gib, name):
    found = apple_device(processor, gib * GIB)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 5070 Ti", "rtx-5070-ti"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA GeForce RTX 4080 SUPER", None),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA H200", "h200-141gb"),
        ("Tesla T4", None),
    ],
)
def test_nvidia_cards_by_their_own_name(text, name):
    found = nvidia_device(text)
    assert (found.name if found else None) == name


STATUS = """Name:	python
VmHWM:	  300 kB
VmRSS:	  260 kB
RssAnon:	  100 kB
RssFile:	  150 kB
RssShmem:	   10 kB
"""


def test_process_memory_is_split(tmp_path):
    path = tmp_path / "status"
    path.write_text(STATUS)
    memory = process_memory(path)
    assert (memory.anonymous, memory.file, memory.shared, memory.peak) == (102400, 153600, 10240, 307200)
    assert memory.resident == 260 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not split what a process holds")
def test_memory_watch_sees_what_came_and_went():
    before = process_memory().anonymous
    with MemoryWatch(interval_s=0.001) as watch:
        block = bytearray(64 * MIB)
        block[::4096] = b"x" * len(block[::4096])
        watch.sample()
        del block
    assert 60 * MIB < watch.peak.anonymous - before < 80 * MIB
    assert process_memory().anonymous - before < 30 * MIB
