"""The kernels under valgrind: no read or write beyond what is theirs, no value used before it is set."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from ctypes import CDLL
from pathlib import Path

import pytest

from tests.cpu_kernels import attention_kernels, linear_kernels
from tests.cpu_kernels.linear_kernels import SOURCE

PROGRAMS = [
    ("linear_memcheck.c", linear_kernels.library, []),
    ("attention_levels.c", attention_kernels.library, ["-DPOSITIONS=40"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "library", "flags"), PROGRAMS, ids=["linear", "attention"])
def test_no_stray_access(program: str, library: Callable[[], CDLL], flags: list[str], tmp_path: Path) -> None:
    valgrind, compiler = shutil.which("valgrind"), shutil.which("cc") or shutil.which("gcc")
    if valgrind is None or compiler is None:
        pytest.skip("needs valgrind and a C compiler")
    kernels, built = library()._name, tmp_path / "memcheck"
    own = Path(__file__).with_name(program)
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}", *flags]
    subprocess.run([compiler, *flags, str(own), kernels, f"-Wl,-rpath,{Path(kernels).parent}", "-o", built], check=True)
    run = subprocess.run(
        [valgrind, "-q", "--error-exitcode=9", str(built)], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
    assert ": 0 of " in run.stdout, run.stdout
