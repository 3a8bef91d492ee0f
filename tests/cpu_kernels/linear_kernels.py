"""The matrix kernels through ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localinfer.backends.cpu.lib import library_path
from localinfer.formats.ggml_types import GGMLType

SOURCE = Path(__file__).parents[2] / "cpu_kernels"
FILES = [*sorted(SOURCE.glob("linear*.c")), *sorted(SOURCE.glob("blocks*.c")), SOURCE / "codebooks.c", SOURCE / "cpu.c"]
FLAGS = ["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]

Floats = NDArray[np.float32]
ALIGNMENT = 64


class Matrix(ctypes.Structure):
    """li_matrix."""

    _fields_ = (
        ("blocks", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("n_in", ctypes.c_int64),
        ("n_out", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
    )


@cache
def library() -> ctypes.CDLL:
    """The installed kernels, or where those are missing or older than the source, built once per source text.

    Skips where there is neither kernel nor C compiler.
    LOCALINFER_TEST_CFLAGS adds flags: "-O1 -g -fsanitize=address,undefined" with libasan preloaded, for one.
    """
    installed = library_path()
    if installed and "LOCALINFER_TEST_CFLAGS" not in os.environ:
        newest = max(p.stat().st_mtime for p in [*FILES, *SOURCE.glob("*.h")])
        if installed.stat().st_mtime > newest:
            return declare(ctypes.CDLL(str(installed)))
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    flags = [*FLAGS, *os.environ.get("LOCALINFER_TEST_CFLAGS", "").split()]
    text = b"".join(p.read_bytes() for p in sorted({*FILES, *SOURCE.glob("*.h")})) + repr(flags).encode()
    folder = Path(tempfile.gettempdir()) / f"localinfer-kernels-{hashlib.sha256(text).hexdigest()[:16]}"
    built = folder / "linear.so"
    if not built.exists():
        folder.mkdir(exist_ok=True)
        part = folder / f"{tempfile.mktemp(dir='')[1:]}.so"
        subprocess.run([compiler, *flags, "-o", str(part), *map(str, FILES), "-lm"], check=True)
        part.replace(built)
    return declare(ctypes.CDLL(str(built)))


def declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    """Argument and result types of linear.h and cpu.h."""
    i, n, p = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
    signatures = {
        "li_type_supported": (i, [i]),
        "li_activation_kind": (i, [i]),
        "li_activation_bytes": (n, [i, n, n]),
        "li_prepare_activations": (None, [i, p, n, n, n, n, p]),
        "li_prepare_blocks": (None, [i, p, n, n, n, p]),
        "li_linear_scratch_bytes": (n, [i, n, n]),
        "li_linear": (None, [ctypes.POINTER(Matrix), p, n, p, n, n, n, p]),
        "li_dequantize_row": (None, [i, p, n, p]),
        "li_cpu_select": (i, [ctypes.c_char_p]),
        "li_cpu_name": (ctypes.c_char_p, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


@cache
def levels() -> list[str]:
    """Instruction sets that this machine can run, "scalar" first."""
    found = [
        name for name in ("scalar", "avx2", "avx512", "neon", "neondot") if library().li_cpu_select(name.encode()) == 0
    ]
    library().li_cpu_select(None)
    return found


@contextmanager
def level(name: str) -> Iterator[None]:
    """The kernels of that instruction set, inside the block."""
    assert library().li_cpu_select(name.encode()) == 0
    try:
        yield
    finally:
        library().li_cpu_select(None)


def aligned_bytes(n_bytes: int, offset: int = 0, fill: int = 0) -> NDArray[np.uint8]:
    """n_bytes that start `offset` bytes after a multiple of 64."""
    room = np.full(n_bytes + ALIGNMENT + offset, fill, np.uint8)
    start = -room.ctypes.data % ALIGNMENT + offset
    return room[start : start + n_bytes]


def prepare(kind: GGMLType, x: Floats) -> NDArray[np.uint8]:
    """(T, n_in) float32 -> what li_linear reads. Filled with a pattern first: nothing may be left unwritten."""
    lib, (t, n_in) = library(), x.shape
    xq = aligned_bytes(lib.li_activation_bytes(kind, n_in, t), fill=0xA5)
    lib.li_prepare_activations(kind, x.ctypes.data, x.strides[0] // 4 if t > 1 else n_in, n_in, 0, t, xq.ctypes.data)
    return xq


def linear(kind: GGMLType, blocks: NDArray[np.uint8], x: Floats, cuts: tuple[int, ...] = (), offset: int = 0) -> Floats:
    """x (T, n_in) times blocks (n_out, row_bytes), rows split at `cuts`, the matrix `offset` bytes off alignment.

    The matrix ends where its memory ends, so that a read beyond it is one that a sanitizer sees.
    """
    lib, (n_out, row_bytes), (t, n_in) = library(), blocks.shape, x.shape
    raw = np.empty(offset + blocks.size, np.uint8)[offset:]
    raw[:] = blocks.reshape(-1)
    matrix = Matrix(raw.ctypes.data, int(kind), 0, n_in, n_out, row_bytes)
    xq = prepare(kind, x)
    scratch = aligned_bytes(lib.li_linear_scratch_bytes(kind, n_in, t), fill=0xA5)
    y = np.full((t, n_out), np.nan, np.float32)
    edges = [0, *cuts, n_out]
    for row0, row1 in pairwise(edges):
        lib.li_linear(matrix, xq.ctypes.data, t, y.ctypes.data, n_out, row0, row1, scratch.ctypes.data)
    return y


def dequantize_row(kind: GGMLType, row: NDArray[np.uint8], n_in: int) -> Floats:
    """One row as float32."""
    out = np.full(n_in, np.nan, np.float32)
    library().li_dequantize_row(kind, row.ctypes.data, n_in, out.ctypes.data)
    return out


def supported_types() -> list[GGMLType]:
    """Types that have kernels."""
    return [kind for kind in GGMLType if library().li_type_supported(kind)]
