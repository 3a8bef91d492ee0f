"""All kernels under the address and undefined-behaviour sanitizers, driven by the tests of kernels and operations."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = [
    "tests/cpu_kernels/test_linear.py",
    "tests/cpu_kernels/test_attention.py",
    "tests/backends/cpu/test_operations.py",
]


@pytest.mark.slow
@pytest.mark.skipif("LOCALINFER_TEST_LONG" not in os.environ, reason="minutes of compiling: LOCALINFER_TEST_LONG=1")
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc")
def test_no_stray_access_and_nothing_undefined() -> None:
    script = Path(__file__).with_name("sanitize.sh")
    run = subprocess.run(
        ["sh", str(script), "-q", *TESTS], capture_output=True, text=True, env={**os.environ, "PYTHON": sys.executable}
    )
    assert run.returncode == 0, f"exit {run.returncode}\n{run.stdout[-3000:]}\n{run.stderr[-6000:]}"
    assert " passed" in run.stdout or "[100%]" in run.stdout, run.stdout
