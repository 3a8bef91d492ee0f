"""The kernels of 64-bit ARM, cross-compiled and run by an emulator: the same bits as plain C.

Run on request (LOCALINFER_TEST_LONG=1) where Debian's gcc-aarch64-linux-gnu and qemu-user are installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.cpu_kernels.linear_kernels import FILES, SOURCE

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]
ATTENTION = [*sorted(SOURCE.glob("attention*.c")), SOURCE / "kv_read.c", SOURCE / "cpu.c"]
RUNS = [("linear_memcheck.c", FILES, "neon"), ("linear_memcheck.c", FILES, "neondot")]
RUNS += [("attention_levels.c", ATTENTION, "neon")]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "LOCALINFER_TEST_LONG" not in os.environ, reason="a minute of emulation: LOCALINFER_TEST_LONG=1"
    ),
]


@cache
def tools() -> tuple[str, str]:
    compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs aarch64-linux-gnu-gcc and qemu-aarch64")
    return compiler, emulator


@pytest.mark.parametrize(("program", "sources", "level"), RUNS, ids=[f"{p[:-2]}-{n}" for p, _, n in RUNS])
def test_the_same_bits_as_plain_c(program: str, sources: list[Path], level: str, tmp_path: Path) -> None:
    compiler, emulator = tools()
    own, built = Path(__file__).with_name(program), tmp_path / "program"
    command = [compiler, *FLAGS, f"-I{SOURCE}", str(own), *map(str, sources), "-static", "-lm", "-o", str(built)]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LOCALINFER_CPU": level}
    run = subprocess.run([emulator, str(built)], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith(f"{level}: 0 of "), run.stdout


def test_everything_compiles_without_a_warning() -> None:
    compiler, _ = tools()
    for source in sorted(SOURCE.glob("*.c")):
        subprocess.run([compiler, *FLAGS, "-fsyntax-only", str(source)], check=True)
