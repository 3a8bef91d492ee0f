"""Speed of the matrix kernels by block type and number of tokens: GB/s of weights read and GMAC/s computed.

    python benchmarks/linear_bandwidth.py --sweep                 each fused type against Q8_0, in turns, two threads
    python benchmarks/linear_bandwidth.py                         every type, one and two threads
    python benchmarks/linear_bandwidth.py --types Q4_1,Q8_0 --tokens 1,2,4,8,128 --threads 1 --n-in 576

One token is bound by memory (the matrix is larger than the last cache), many tokens by arithmetic (it is not). Figures
of the table are the best of several repetitions, so that another program's share of the machine shows as little as
possible; the read bandwidth of like memory, by as many threads, is in the first line of each thread count. The sweep's
ratios are medians over pairs of runs, one of the type and one of Q8_0, with the least and the largest; it ends with
status 1 where a type reads less than half as many bytes a second as Q8_0.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from localinfer.backends.cpu.lib import library_path
from localinfer.errors import BackendError
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import random_blocks

LARGE_BYTES, SMALL_BYTES = 128 << 20, 1 << 20  # beyond the last cache; within the second one, nearly
FUSED_TYPES = "Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,IQ4_NL,MXFP4,Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ4_XS,F16,BF16,F32"
OTHER_TYPES = "IQ1_S,IQ1_M,IQ2_XXS,IQ2_XS,IQ2_S,IQ3_XXS,IQ3_S,TQ1_0,TQ2_0,NVFP4"
PIECES_A_THREAD = 4  # so that a thread that is held up leaves its work to the others
LEAST_RATIO = 0.5


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


def seconds_of(pool: ThreadPoolExecutor, pieces: list[tuple], call) -> float:
    """Of call(*piece) over all pieces, shared out among the pool's threads."""
    start = time.perf_counter()
    list(pool.map(lambda piece: call(*piece), pieces))
    return time.perf_counter() - start


def read_bandwidth(pool: ThreadPoolExecutor, n_threads: int, repeats: int) -> float:
    """GB/s of a numpy sum over memory like that of the matrices."""
    data = np.ones(LARGE_BYTES // 8, np.int64)
    parts = [(part,) for part in np.array_split(data, n_threads)]
    return data.nbytes / min(seconds_of(pool, parts, np.sum) for _ in range(repeats)) / 1e9


class Product:
    """x (t, n_in) times a matrix of random blocks, its rows in pieces for n_threads."""

    def __init__(self, lib: ctypes.CDLL, kind: GGMLType, n_in: int, t: int, n_threads: int) -> None:
        row_bytes = kind.row_bytes(n_in)
        n_out = max(64, (LARGE_BYTES if t == 1 else SMALL_BYTES) // row_bytes // 64 * 64)
        rng = np.random.default_rng(0)
        blocks = np.tile(random_blocks(kind, (64, n_in), rng), (n_out // 64, 1))
        matrix = Matrix(blocks.ctypes.data, int(kind), 0, n_in, n_out, row_bytes)
        x = rng.normal(size=(t, n_in)).astype(np.float32)
        xq, y = aligned(lib.li_activation_bytes(kind, n_in, t)), np.empty((t, n_out), np.float32)
        lib.li_prepare_activations(kind, x.ctypes.data, n_in, n_in, 0, t, xq.ctypes.data)
        n = n_threads * PIECES_A_THREAD
        edges = [n_out * i // n // 16 * 16 for i in range(n)] + [n_out]
        self.pieces = [(first, end) for first, end in pairwise(edges) if end > first]
        self.n_bytes, self.n_products = blocks.size, n_in * n_out * t
        scratch_bytes = lib.li_linear_scratch_bytes(kind, n_in, t)
        rooms = threading.local()

        def rows(first: int, end: int) -> None:
            if not hasattr(rooms, "scratch"):
                rooms.scratch = aligned(scratch_bytes)
            scratch = rooms.scratch.ctypes.data
            lib.li_linear(matrix, xq.ctypes.data, t, y.ctypes.data, n_out, first, end, scratch)

        self.keep, self.rows = (blocks, xq, y), rows

    def seconds(self, pool: ThreadPoolExecutor) -> float:
        return seconds_of(pool, self.pieces, self.rows)

    def speed(self, pool: ThreadPoolExecutor, repeats: int) -> Speed:
        seconds = min(self.seconds(pool) for _ in range(repeats))
        return Speed(self.n_bytes / seconds / 1e9, self.n_products / seconds / 1e9)


def default_n_in(kind: GGMLType) -> int:
    return 1536 if kind.block_values <= 64 else 2048


def table(lib: ctypes.CDLL, args: argparse.Namespace, pool: ThreadPoolExecutor, n_threads: int) -> None:
    tokens = [int(t) for t in args.tokens.split(",")]
    print(f"{'type':8} {'n_in':>5}  " + "  ".join(f"T={t:<3} GB/s  GMAC/s" for t in tokens))
    for name in (args.types or f"{FUSED_TYPES},{OTHER_TYPES}").split(","):
        kind = GGMLType[name]
        n_in = args.n_in or default_n_in(kind)
        found = [Product(lib, kind, n_in, t, n_threads).speed(pool, args.repeats) for t in tokens]
        cells = "  ".join(f"{s.gb_per_s:10.2f}  {s.gmac_per_s:6.1f}" for s in found)
        print(f"{name:8} {n_in:5}  {cells}", flush=True)


def sweep(lib: ctypes.CDLL, args: argparse.Namespace, pool: ThreadPoolExecutor, n_threads: int) -> bool:
    """One token times each type and times Q8_0, in turns; whether all types reach LEAST_RATIO."""
    base = Product(lib, GGMLType.Q8_0, args.n_in or default_n_in(GGMLType.Q8_0), 1, n_threads)
    least: dict[str, float] = {}
    print(f"{'type':8} {'n_in':>5}  {'GB/s':>6}  of Q8_0 (least to largest of {args.repeats} pairs)")
    for name in (args.types or FUSED_TYPES).split(","):
        kind = GGMLType[name]
        n_in = args.n_in or default_n_in(kind)
        product = Product(lib, kind, n_in, 1, n_threads)
        product.seconds(pool), base.seconds(pool)
        speeds, ratios = [], []
        for _ in range(args.repeats):
            speeds.append(product.n_bytes / product.seconds(pool) / 1e9)
            ratios.append(speeds[-1] / (base.n_bytes / base.seconds(pool) / 1e9))
        least[name] = median(ratios)
        print(
            f"{name:8} {n_in:5}  {median(speeds):6.2f}  {least[name]:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )
    slow = [name for name, ratio in least.items() if ratio < LEAST_RATIO]
    print(f"below {LEAST_RATIO}: {', '.join(slow) or 'none'}")
    return not slow


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sweep", action="store_true", help="one token, each fused type against Q8_0 in turns")
    parser.add_argument("--types", default="", help="names with commas between; all, or with --sweep the fused ones")
    parser.add_argument("--tokens", default="1,2,4,8,128")
    parser.add_argument("--threads", default="", help="1,2, or with --sweep 2")
    parser.add_argument("--n-in", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=0, help="7, or with --sweep 15 pairs")
    args = parser.parse_args()
    args.repeats = args.repeats or (15 if args.sweep else 7)
    lib, good = open_kernels(), True
    for n_threads in (int(n) for n in (args.threads or ("2" if args.sweep else "1,2")).split(",")):
        with ThreadPoolExecutor(n_threads) as pool:
            memory = read_bandwidth(pool, n_threads, args.repeats)
            print(f"{n_threads} threads, {lib.li_cpu_name().decode()}, memory read {memory:.1f} GB/s")
            if args.sweep:
                good = sweep(lib, args, pool, n_threads) and good
            else:
                table(lib, args, pool, n_threads)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
