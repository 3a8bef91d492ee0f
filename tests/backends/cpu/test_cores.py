"""The default thread count: affinity, cores, and CPU quotas of both cgroup versions."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from localinfer.backends.cpu.cores import _cgroup_cores, default_threads


def files(root: Path, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    "contents,cores",
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "100000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "nonsense\n"}, None),
    ],
)
def test_cgroup_quota(tmp_path: Path, contents: dict[str, str], cores: int | None) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "self"
    root.mkdir()
    files(root, contents)
    proc.write_text("0::/a/b\n")
    assert _cgroup_cores(root, proc) == cores


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is asked for on Linux")
def test_affinity_limits_the_default() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert default_threads() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert 1 <= default_threads() <= len(before)
