"""The threads that read weights ahead, built plain and under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "cpu_kernels"


@pytest.mark.parametrize("sanitizer,rounds", [("", 60), ("address,undefined", 30), ("thread", 20)])
def test_readers_find_what_the_file_holds(tmp_path: Path, sanitizer: str, rounds: int) -> None:
    program = tmp_path / "pager_stress"
    flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{KERNELS}", "-D_GNU_SOURCE"]
    if sanitizer:
        flags += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    sources = [
        HERE / "pager_stress.c",
        *(KERNELS / f"{name}.c" for name in ("pager", "experts", "experts_loader", "storage")),
    ]
    built = subprocess.run([compiler, *flags, "-o", program, *sources, "-lm"], capture_output=True, text=True)
    if built.returncode and sanitizer and "cannot find" in built.stderr:
        pytest.skip(f"the compiler has no {sanitizer} sanitizer")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([program, tmp_path / "weights", str(rounds)], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "ok\n"), ran.stdout + ran.stderr
