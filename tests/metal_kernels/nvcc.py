"""Every kernel in the form MLX gives it on CUDA, compiled by nvcc: registers, spills, instructions. MLX's CPU build
does not generate CUDA sources, so its form is written here: inputs as const pointers, template values as constexpr
(mlx/backend/cuda/custom_kernel.cpp, v0.32)."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localinfer.backends.mlx.kernels import dialect
from tests.metal_kernels.cases import Case

ARCHES = ("sm_120", "sm_90")  # RTX PRO 6000 Blackwell; H100 and H200
INCLUDES = "#include <stdint.h>\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
C_TYPES = {"float32": "float", "float16": "__half", "int32": "int32_t", "uint8": "uint8_t", "uint16": "uint16_t",
           "uint32": "uint32_t"}  # fmt: skip
_USED = re.compile(
    r"Compiling entry function '(\w+)' for '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?"
    r"Used (\d+) registers",
    re.S,
)
_INSTRUCTION = re.compile(r"\s+(@!?%\w+ )?[a-z][\w.]*\s.*;")


@dataclass(frozen=True)
class Use:
    registers: int
    spill_bytes: int


def source(cases: Sequence[Case]) -> str:
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


def compile_cases(cases: Sequence[Case], arches: Sequence[str] = ARCHES) -> dict[str, list[Use]]:
    """Registers and spills of each case, by architecture. AssertionError with nvcc's words where it refuses."""
    targets = [f"-gencode=arch=compute_{a[3:]},code={a}" for a in arches]
    log = _nvcc(source(cases), [*targets, "-Xptxas", "-v", "-fatbin"], "kernels.fatbin")[0]
    found = {(arch, name): Use(int(used), int(spill)) for name, arch, _, spill, used in _USED.findall(log)}
    return {arch: [found[arch, f"case_{i}_k"] for i in range(len(cases))] for arch in arches}


def loop_instructions(cases: Sequence[Case]) -> list[int]:
    """PTX instructions of each case's longest loop, which is the one over a row's blocks."""
    ptx = _nvcc(source(cases), ["-arch=compute_90", "-ptx"], "kernels.ptx")[1]
    bodies = [re.search(rf"entry case_{i}_k\(.*?\n}}", ptx, re.S) for i in range(len(cases))]
    return [max(_loops(body[0].splitlines())) for body in bodies if body]


def _loops(lines: list[str]) -> list[int]:
    labels = {m[1]: n for n, line in enumerate(lines) if (m := re.match(r"\$(\w+):", line))}
    jumps = [(n, m[1]) for n, line in enumerate(lines) if (m := re.search(r"bra(?:\.uni)?\s+\$(\w+);", line))]
    bodies = [lines[labels[to] : n + 1] for n, to in jumps if labels[to] < n]
    return [sum(bool(_INSTRUCTION.match(line)) for line in body) for body in bodies]


def _nvcc(code: str, options: list[str], name: str) -> tuple[str, str]:
    """What it prints, and what it writes where that is text."""
    with tempfile.TemporaryDirectory() as folder:
        text, out = Path(folder) / "kernels.cu", Path(folder) / name
        text.write_text(code)
        done = subprocess.run(
            ["nvcc", "-std=c++20", *options, "-o", str(out), str(text)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[:4000]
        return done.stderr, out.read_text() if out.suffix == ".ptx" else ""
