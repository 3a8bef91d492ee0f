"""Every kernel in the form MLX gives it on CUDA, compiled by nvcc: `python -m tests.metal_kernels.nvcc` prints
registers and spills. MLX's CPU build does not generate CUDA sources, so its form is written here: inputs as const
pointers, template values as constexpr (mlx/backend/cuda/custom_kernel.cpp, v0.32)."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from localinfer.backends.mlx.kernels import dialect
from tests.metal_kernels.cases import Case, block_cases, other_cases

INCLUDES = "#include <stdint.h>\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
C_TYPES = {"float32": "float", "float16": "__half", "int32": "int32_t", "uint8": "uint8_t", "uint16": "uint16_t",
           "uint32": "uint32_t"}  # fmt: skip
_USED = re.compile(
    r"Compiling entry function '(\w+)' for '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?"
    r"Used (\d+) registers",
    re.S,
)


@dataclass(frozen=True)
class Use:
    registers: int
    spill_bytes: int


def source(cases: list[Case]) -> str:
    """One file; each case in a namespace of its own, since every block type calls its decoder Block."""
    return INCLUDES + dialect("cuda") + "\n".join(_function(f"case_{i}", c) for i, c in enumerate(cases))


def _function(name: str, case: Case) -> str:
    k = case.kernel
    arguments = [f"const {C_TYPES[case.types[n]]}* {n}" for n in k.inputs]
    arguments += [f"{C_TYPES[case.types[n]]}* {n}" for n in k.outputs]
    values = [
        f"using {n} = {C_TYPES[v]};" if isinstance(v, str) else f"constexpr int {n} = {v};" for n, v in case.template
    ]
    lines = [f"namespace {name} {{", k.header, "}", "{", *values, k.source, "}"]
    lines[3:3] = [f'extern "C" __global__ void {name}_k({", ".join(arguments)}) {{ using namespace {name};']
    return "\n".join([*lines, "}"])


def compile_cases(cases: list[Case], arch: str) -> list[Use]:
    """Registers and spills of each case. AssertionError with nvcc's words where it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "kernels.cu"
        code.write_text(source(cases))
        command = ["nvcc", "-std=c++20", f"-arch={arch}", "-Xptxas", "-v", "-cubin", "-o", f"{folder}/out", str(code)]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    found = {name: Use(int(registers), int(spill)) for name, _, _, spill, registers in _USED.findall(done.stderr)}
    return [found[f"case_{i}_k"] for i in range(len(cases))]


def main(arches: list[str]) -> None:
    cases = [*block_cases("cuda"), *other_cases()]
    for arch in arches or ["sm_120", "sm_90"]:
        for case, use in zip(cases, compile_cases(cases, arch), strict=True):
            shape = " ".join(f"{n}={v}" for n, v in case.template)
            print(
                f"{arch}  {case.label:24} {use.registers:4} registers {use.spill_bytes:4} B spilled  {shape}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
