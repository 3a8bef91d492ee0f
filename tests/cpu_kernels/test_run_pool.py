"""The thread pool, built plain and under sanitizers, with more threads than cores."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "cpu_kernels"


@pytest.mark.parametrize("sanitizer,n_jobs", [("", 300), ("address,undefined", 100), ("thread", 60)])
def test_pool_runs_every_item_once_and_phases_in_order(tmp_path: Path, sanitizer: str, n_jobs: int) -> None:
    program = tmp_path / "pool_stress"
    flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{KERNELS}", "-D_GNU_SOURCE"]
    if sanitizer:
        flags += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    sources = [HERE / "pool_stress.c", KERNELS / "threads.c"]
    built = subprocess.run([compiler, *flags, "-o", program, *sources], capture_output=True, text=True)
    if built.returncode and sanitizer and "cannot find" in built.stderr:
        pytest.skip(f"the compiler has no {sanitizer} sanitizer")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([program, str(n_jobs)], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "ok\n"), ran.stdout + ran.stderr
