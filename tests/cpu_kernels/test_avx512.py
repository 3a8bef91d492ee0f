"""The AVX-512 kernels where the processor has no AVX-512: its instructions written with AVX2, the same bits as plain C.

SIMDe (Debian: libsimde-dev) defines the intrinsics of AVX-512 in terms of what there is; the kernels' own sources are
compiled with them. Run on request (LOCALINFER_TEST_LONG=1). A machine with AVX-512 needs none of this: there the tests
of all kernels run on the level itself.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cpu_kernels.linear_kernels import FILES, SOURCE
from tests.cpu_kernels.test_arm import ATTENTION

FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-mavx2", "-mfma", "-mf16c", "-ffp-contract=off", "-fno-math-errno"]
EMULATED = ['-DLI_AVX512_TARGET="avx2,fma,f16c"', "-D__builtin_cpu_supports(name)=1", "-Wno-psabi"]
# Found before the compiler's own header of that name. The conversion is one that SIMDe 0.7 lacks.
INTRINSICS = """
#pragma once
#include_next <immintrin.h>
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
typedef int32_t sixteen_ints __attribute__((vector_size(64)));
typedef float sixteen_floats __attribute__((vector_size(64)));
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(v) ((__m512)__builtin_convertvector((sixteen_ints)(v), sixteen_floats))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("LOCALINFER_TEST_LONG" not in os.environ, reason="minutes of compiling: LOCALINFER_TEST_LONG=1"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
    pytest.mark.skipif(not Path("/usr/include/simde").exists(), reason="needs SIMDe (Debian: libsimde-dev)"),
]


@pytest.mark.parametrize(
    ("program", "sources"),
    [("linear_memcheck.c", FILES), ("attention_levels.c", ATTENTION)],
    ids=["linear", "attention"],
)
def test_the_same_bits_as_plain_c(program: str, sources: list[Path], tmp_path: Path) -> None:
    (tmp_path / "immintrin.h").write_text(INTRINSICS)
    own, built = Path(__file__).with_name(program), tmp_path / "program"
    includes = [f"-I{tmp_path}", f"-I{SOURCE}"]
    compiled = subprocess.run(
        ["gcc", *FLAGS, *EMULATED, *includes, str(own), *map(str, sources), "-lm", "-o", str(built)],
        capture_output=True,
        text=True,
    )
    assert compiled.returncode == 0, compiled.stderr
    run = subprocess.run([str(built)], capture_output=True, text=True, env={**os.environ, "LOCALINFER_CPU": "avx512"})
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("avx512: 0 of "), run.stdout
