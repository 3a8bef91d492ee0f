"""Kernels executed on the host: compiled with shim.h by a C++ compiler, run with SIMD-group semantics.

`HostLauncher` stands in for the GPU launchers, so the backend's own GPU path runs here, kernel for kernel.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localinfer.backends.mlx.kernels import Kernel

SHIM = Path(__file__).parent / "shim.h"
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
QUIET = [
    "-Wno-maybe-uninitialized", "-Wno-clobbered", "-Wno-unused-variable", "-Wno-unused-function",
    "-Wno-unknown-pragmas", "-U_FORTIFY_SOURCE",
]  # fmt: skip
C_TYPES = {"float32": "float", "float16": "float16_t", "bfloat16": "bfloat16_t", "int32": "int32_t"} | {
    f"uint{n}": f"uint{n}_t" for n in (8, 16, 32, 64)
}


class Track(ctypes.Structure):
    _fields_ = (("owner", ctypes.c_void_p), ("shared", ctypes.c_void_p), ("reads", ctypes.c_void_p))


@dataclass
class Counts:
    """What a kernel did to one buffer: by byte for an input, by element for an output."""

    owner: np.ndarray
    shared: np.ndarray
    reads: np.ndarray

    @classmethod
    def of(cls, n: int) -> Counts:
        return cls(np.zeros(n, np.int32), np.zeros(n, np.uint8), np.zeros(n, np.uint16))

    def track(self) -> Track:
        return Track(self.owner.ctypes.data, self.shared.ctypes.data, self.reads.ctypes.data)


@dataclass
class Run:
    outputs: list[np.ndarray]
    counts: dict[str, Counts] = field(default_factory=dict)


def compiler() -> str:
    if sys.platform == "darwin":
        pytest.skip("kernels are executed on the host on Linux; a Mac has `localinfer doctor --gpu-selftest`")
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("no C++ compiler to run the kernels with")
    return found


def source(kernel: Kernel, types: dict[str, str], template: Sequence[tuple[str, Any]]) -> str:
    """One translation unit that runs this kernel with these template arguments and array types."""
    lines = ['#include "shim.h"', kernel.header]
    lines += [
        f"using {n} = {C_TYPES[v]};" if isinstance(v, str) else f"static constexpr int {n} = {int(v)};"
        for n, v in template
    ]
    names = [*kernel.inputs, *kernel.outputs]
    for n in names:
        lines.append(f"static Checked<{'const ' if n in kernel.inputs else ''}{C_TYPES[types[n]]}> {n};")
    lines += ["static void body() {", kernel.source, "}"]
    lines.append(
        'extern "C" const char* run(char** p, int64_t* n, Track** t, const uint32_t* grid, const uint32_t* group) {'
    )
    for i, name in enumerate(names):
        c = ("const " if name in kernel.inputs else "") + C_TYPES[types[name]]
        lines.append(f"  {name} = {{({c}*)p[{i}], ({c}*)p[{i}], ({c}*)(p[{i}] + n[{i}]), t[{i}]}};")
    return "\n".join([*lines, "  return li_run(body, grid, group);", "}"])


@cache
def _folder() -> Path:
    path = Path(tempfile.gettempdir()) / f"localinfer-host-kernels-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp())
    return path


@cache
def _include_folder(tool: str) -> Path:
    """Where shim.h is, precompiled for g++: that halves the time of each kernel's build."""
    if "clang" in tool:
        return SHIM.parent
    key = hashlib.sha256((SHIM.read_text() + repr((tool, FLAGS, QUIET))).encode()).hexdigest()[:24]
    folder = _folder() / f"shim-{key}"
    built = folder / "shim.h.gch"
    if not built.exists():
        folder.mkdir(exist_ok=True)
        (folder / "shim.h").write_text(SHIM.read_text())
        part = folder / f"{os.getpid()}.gch"
        flags = [f for f in FLAGS if f != "-shared"]
        subprocess.run([tool, *flags, *QUIET, "-x", "c++-header", "-o", str(part), str(folder / "shim.h")], check=True)
        part.replace(built)
    return folder


@cache
def _library(text: str) -> Any:
    tool = compiler()
    key = hashlib.sha256((text + SHIM.read_text() + repr((tool, FLAGS, QUIET))).encode()).hexdigest()[:24]
    built = _folder() / f"{key}.so"
    if not built.exists():
        code, part = _folder() / f"{key}.{os.getpid()}.cpp", _folder() / f"{key}.{os.getpid()}.so"
        code.write_text(text)
        done = subprocess.run(
            [tool, *FLAGS, *QUIET, f"-I{_include_folder(tool)}", "-o", str(part), str(code)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[:4000]
        part.replace(built)
        code.unlink()
    function = ctypes.CDLL(str(built)).run
    function.restype = ctypes.c_char_p
    return function


def run_kernel(
    kernel: Kernel,
    inputs: Sequence[np.ndarray],
    template: Sequence[tuple[str, Any]],
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[str],
    counted: Sequence[str] = (),
) -> Run:
    """Execute; AssertionError with the shim's line for anything that a GPU would not have forgiven.

    Every element of every output must have been written exactly once.
    """
    arrays = [_aligned(a) for a in inputs]
    bits = ["uint16" if d == "bfloat16" else d for d in dtypes]
    outputs = [_aligned(np.zeros(s, b)) for s, b in zip(shapes, bits, strict=True)]
    names = [*kernel.inputs, *kernel.outputs]
    types = dict(zip(names, [*(str(a.dtype) for a in arrays), *dtypes], strict=True))
    function = _library(source(kernel, types, template))
    buffers = [*arrays, *outputs]
    counts = {n: Counts.of(a.nbytes) for n, a in zip(kernel.inputs, arrays, strict=True) if n in counted}
    counts |= {n: Counts.of(a.size) for n, a in zip(kernel.outputs, outputs, strict=True)}
    tracks = [counts[n].track() if n in counts else None for n in names]
    pointers = (ctypes.c_void_p * len(names))(*[a.ctypes.data for a in buffers])
    sizes = (ctypes.c_int64 * len(names))(*[a.nbytes for a in buffers])
    refs = (ctypes.POINTER(Track) * len(names))(*[ctypes.pointer(t) if t else ctypes.POINTER(Track)() for t in tracks])
    error = function(pointers, sizes, refs, (ctypes.c_uint32 * 3)(*grid), (ctypes.c_uint32 * 3)(*threadgroup))
    assert not error, f"{kernel.name}: {error.decode()}"
    for name, out in zip(kernel.outputs, outputs, strict=True):
        assert out.size == 0 or (counts[name].reads == 1).all(), f"{kernel.name}: {name} not written once everywhere"
    return Run(outputs, counts)


def _aligned(a: np.ndarray) -> np.ndarray:
    """The same values in memory that starts at a multiple of 64, as an MLX buffer does."""
    raw = np.zeros(a.nbytes + 64, np.uint8)
    at = -raw.ctypes.data % 64
    out = raw[at : at + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out
