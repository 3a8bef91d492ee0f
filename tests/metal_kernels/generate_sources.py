"""Prints the Metal source that MLX itself generates for every case: `python -m tests.metal_kernels.generate_sources`.

MLX's CPU build has no Metal, but under mx.export_function it still writes the kernel's source (verbose=True prints it).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import mlx.core as mx

from localinfer.backends.mlx.kernels import dialect
from tests.metal_kernels.cases import Case, block_cases, other_cases

DTYPES = {
    "float32": mx.float32, "float16": mx.float16, "int32": mx.int32, "uint8": mx.uint8, "uint16": mx.uint16,
    "uint32": mx.uint32,
}  # fmt: skip
SMALL = ("sizes", "reals", "tiles", "ids")  # below 8 elements in use: another address space


def generate(case: Case, folder: str) -> None:
    k = case.kernel
    made = mx.fast.metal_kernel(
        name=k.name, input_names=list(k.inputs), output_names=list(k.outputs), source=k.source,
        header=dialect("metal") + k.header,
    )  # fmt: skip
    inputs = [mx.zeros((3 if n in SMALL else 4096,), DTYPES[case.types[n]]) for n in k.inputs]

    def call(*arrays: mx.array) -> list[mx.array]:
        return made(
            inputs=list(arrays), template=[(n, DTYPES.get(v, v)) for n, v in case.template], grid=(32, 1, 1),
            threadgroup=(32, 1, 1), output_shapes=[(64,)] * len(k.outputs),
            output_dtypes=[DTYPES[case.types[n]] for n in k.outputs], verbose=True,
        )  # fmt: skip

    mx.export_function(str(Path(folder) / "kernel.mlxfn"), call, *inputs)


@cache
def sources() -> dict[str, str]:
    """Case label -> generated source. In a process of its own, since MLX prints from C++."""
    command = [sys.executable, "-m", "tests.metal_kernels.generate_sources"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^=== (.*)$", done.stdout, flags=re.M)[1:]
    found = {label: re.search(r"```\n(.*)```", text, re.S) for label, text in zip(parts[::2], parts[1::2], strict=True)}
    return {label: match[1] for label, match in found.items() if match}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for case in (*block_cases("metal", (1, 16)), *other_cases()):
            print(f"=== {case.label}", flush=True)
            generate(case, folder)


if __name__ == "__main__":
    main()
