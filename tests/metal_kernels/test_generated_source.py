"""What MLX makes of the kernels: the source it generates for Metal, type-checked as far as a host compiler can; and the
CUDA form through nvcc where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from localinfer.backends.mlx.kernels import dialect
from tests.metal_kernels.cases import block_cases, other_cases
from tests.metal_kernels.host import compiler
from tests.metal_kernels.nvcc import compile_cases

HERE = Path(__file__).parent


@cache
def sources() -> dict[str, str]:
    """Case label -> generated source."""
    if find_spec("mlx") is None:
        pytest.skip("mlx is not installed")
    command = [sys.executable, "-m", "tests.metal_kernels.generate_sources"]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^=== (.*)$", done.stdout, flags=re.M)[1:]
    return {
        label: re.search(r"```\n(.*)```", text, re.S)[1] for label, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_case_is_generated_in_ascii() -> None:
    """MLX hands sources to Metal as ASCII: one other byte, even in a comment, and there is no source at all."""
    expected = {c.label for c in (*block_cases("metal", (1, 16)), *other_cases())}
    assert set(sources()) == expected
    assert all(text.isascii() for text in sources().values())


def test_arguments_are_what_the_bodies_expect() -> None:
    text = sources()["linear Q4_K x1"]
    assert "const device uint32_t* w [[buffer(0)]]" in text
    assert "const constant int32_t* sizes [[buffer(3)]]" in text, "three sizes are few enough for the constant space"
    assert "uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]" in text
    for label, text in sources().items():
        assert "_shape" not in text and "_strides" not in text, f"{label} asks for shapes that no kernel uses"


def test_generated_sources_pass_a_type_check(tmp_path: Path) -> None:
    """In files of eight, each source in a namespace of its own."""
    tool = compiler()
    labels = list(sources())
    for at in range(0, len(labels), 8):
        code = ['#include "metal_on_host.h"']
        for i, label in enumerate(labels[at : at + 8]):
            text = "\n".join(line for line in sources()[label].splitlines() if not line.startswith("#"))
            code += [f"namespace case_{i} {{", text, "}"]
        unit = tmp_path / "generated.cpp"
        unit.write_text(_defines() + "\n".join(code))
        flags = ["-std=c++17", "-fsyntax-only", "-Wno-attributes", "-Wno-unknown-pragmas", f"-I{HERE}"]
        done = subprocess.run([tool, *flags, str(unit)], capture_output=True, text=True)
        assert done.returncode == 0, f"{labels[at : at + 8]}: {done.stderr[:3000]}"


def _defines() -> str:
    """The dialect's macros, once; its functions come with each source."""
    return "\n".join(line for line in dialect("metal").splitlines() if line.startswith("#")) + "\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("arch", ["sm_120", "sm_90"])
def test_cuda_form_compiles_without_spills(arch: str) -> None:
    """Types with wide, narrow and single-byte loads, and all that is no matrix; nvcc.py as a program has all."""
    typical = ("Q4_K", "Q6_K", "MXFP4")
    cases = [c for c in block_cases("cuda", (1, 4)) if c.label.split()[1] in typical]
    cases += other_cases()
    for case, use in zip(cases, compile_cases(cases, arch), strict=True):
        assert use.spill_bytes == 0, f"{case.label}: {use}"
        assert use.registers <= 168, f"{case.label}: {use}"  # three warps of a scheduler's 512 registers a lane
