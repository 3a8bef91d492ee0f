"""The matrix kernels under valgrind: no read or write beyond a matrix, no value used before it is set."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cpu_kernels.linear_kernels import SOURCE, library


@pytest.mark.slow
def test_no_stray_access(tmp_path: Path) -> None:
    valgrind, compiler = shutil.which("valgrind"), shutil.which("cc") or shutil.which("gcc")
    if valgrind is None or compiler is None:
        pytest.skip("needs valgrind and a C compiler")
    built, program = library()._name, tmp_path / "memcheck"
    source = Path(__file__).with_name("linear_memcheck.c")
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}"]
    subprocess.run(
        [compiler, *flags, str(source), built, f"-Wl,-rpath,{Path(built).parent}", "-o", program], check=True
    )
    run = subprocess.run(
        [valgrind, "-q", "--error-exitcode=9", str(program)], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
    assert ": 0 of " in run.stdout, run.stdout
