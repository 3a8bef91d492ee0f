"""Speed of the matrix kernels by block type and number of tokens: GB/s of weights read and GMAC/s computed.

    python benchmarks/linear_bandwidth.py                         every type, one and two threads
    python benchmarks/linear_bandwidth.py --types Q4_1,Q8_0 --tokens 1,2,4,8,128 --threads 1 --n-in 576

One token is bound by memory (the matrix is larger than the last cache), many tokens by arithmetic (it is not). Figures
are the best of several repetitions, so that another program's share of the machine shows as little as possible; the
read bandwidth of like memory, by as many threads, is in the first line of each thread count.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localinfer.backends.cpu.lib import library_path
from localinfer.errors import BackendError
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import random_blocks

LARGE_BYTES, SMALL_BYTES = 128 << 20, 1 << 20  # beyond the last cache; within the second one, nearly
DEFAULT_TYPES = (
    "Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,IQ4_NL,MXFP4,Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ4_XS,F16,BF16,F32,"
    "IQ1_S,IQ1_M,IQ2_XXS,IQ2_XS,IQ2_S,IQ3_XXS,IQ3_S,TQ1_0,TQ2_0,NVFP4"
)


class Matrix(ctypes.Structure):
    """li_matrix of linear.h."""

    _fields_ = (
        ("blocks", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("n_in", ctypes.c_int64),
        ("n_out", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Speed:
    """Of the best repetition."""

    gb_per_s: float
    gmac_per_s: float


def open_kernels() -> ctypes.CDLL:
    path = library_path()
    if path is None:
        raise BackendError("the CPU kernels are not built", "python setup.py build_ext --inplace")
    lib = ctypes.CDLL(str(path))
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    lib.li_activation_bytes.restype = lib.li_linear_scratch_bytes.restype = integer
    lib.li_activation_bytes.argtypes = lib.li_linear_scratch_bytes.argtypes = [ctypes.c_int, integer, integer]
    lib.li_prepare_activations.argtypes = [ctypes.c_int, pointer, integer, integer, integer, integer, pointer]
    lib.li_prepare_activations.restype = lib.li_linear.restype = None
    lib.li_linear.argtypes = [ctypes.POINTER(Matrix), pointer, integer, pointer, integer, integer, integer, pointer]
    lib.li_cpu_name.restype = ctypes.c_char_p
    return lib


def aligned(n_bytes: int) -> NDArray[np.uint8]:
    room = np.zeros(n_bytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + n_bytes]


def best_time(pool: ThreadPoolExecutor, pieces: list[tuple], call, repeats: int) -> float:
    """Seconds of the fastest of `repeats` runs of call(*piece) over all pieces at once."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        list(pool.map(lambda piece: call(*piece), pieces))
        times.append(time.perf_counter() - start)
    return min(times)


def read_bandwidth(pool: ThreadPoolExecutor, n_threads: int, repeats: int) -> float:
    """GB/s of a numpy sum over memory like that of the matrices."""
    data = np.ones(LARGE_BYTES // 8, np.int64)
    return data.nbytes / best_time(pool, [(part,) for part in np.array_split(data, n_threads)], np.sum, repeats) / 1e9


def speed(
    lib: ctypes.CDLL, pool: ThreadPoolExecutor, kind: GGMLType, n_in: int, t: int, n_threads: int, repeats: int
) -> Speed:
    """x (t, n_in) times a matrix of random blocks, its rows shared out among the threads."""
    row_bytes = kind.row_bytes(n_in)
    n_out = max(64, (LARGE_BYTES if t == 1 else SMALL_BYTES) // row_bytes // 64 * 64)
    rng = np.random.default_rng(0)
    blocks = np.tile(random_blocks(kind, (64, n_in), rng), (n_out // 64, 1))
    matrix = Matrix(blocks.ctypes.data, int(kind), 0, n_in, n_out, row_bytes)
    x = rng.normal(size=(t, n_in)).astype(np.float32)
    xq, y = aligned(lib.li_activation_bytes(kind, n_in, t)), np.empty((t, n_out), np.float32)
    lib.li_prepare_activations(kind, x.ctypes.data, n_in, n_in, 0, t, xq.ctypes.data)
    edges = [n_out * i // n_threads // 16 * 16 for i in range(n_threads)] + [n_out]
    room = [aligned(lib.li_linear_scratch_bytes(kind, n_in, t)) for _ in range(n_threads)]

    def rows(first: int, end: int, scratch: NDArray[np.uint8]) -> None:
        lib.li_linear(matrix, xq.ctypes.data, t, y.ctypes.data, n_out, first, end, scratch.ctypes.data)

    seconds = best_time(pool, list(zip(edges, edges[1:], room, strict=False)), rows, repeats)
    return Speed(blocks.size / seconds / 1e9, n_in * n_out * t / seconds / 1e9)


def default_n_in(kind: GGMLType) -> int:
    return 1536 if kind.block_values <= 64 else 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--types", default=DEFAULT_TYPES)
    parser.add_argument("--tokens", default="1,2,4,8,128")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--n-in", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    lib = open_kernels()
    tokens = [int(t) for t in args.tokens.split(",")]
    for n_threads in (int(n) for n in args.threads.split(",")):
        with ThreadPoolExecutor(n_threads) as pool:
            memory = read_bandwidth(pool, n_threads, args.repeats)
            print(f"{n_threads} threads, {lib.li_cpu_name().decode()}, memory read {memory:.1f} GB/s")
            print(f"{'type':8} {'n_in':>5}  " + "  ".join(f"T={t:<3} GB/s  GMAC/s" for t in tokens))
            for name in args.types.split(","):
                kind = GGMLType[name]
                n_in = args.n_in or default_n_in(kind)
                found = [speed(lib, pool, kind, n_in, t, n_threads, args.repeats) for t in tokens]
                cells = "  ".join(f"{s.gb_per_s:10.2f}  {s.gmac_per_s:6.1f}" for s in found)
                print(f"{name:8} {n_in:5}  {cells}", flush=True)


if __name__ == "__main__":
    main()
