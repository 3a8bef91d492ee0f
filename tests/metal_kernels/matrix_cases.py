"""What every block type's matrix kernels are put through on the host: the tests run it, the kernel table counts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from localinfer.backends.mlx.gpu_linear import matvec_shape
from localinfer.backends.mlx.kernels import BLOCKS, block_kernel
from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import random_blocks
from tests.metal_kernels.host import Counts, Run, run_kernel

ROWS = (1, 2, 3, 31, 32, 33, 255, 256, 257)
# Lanes that share a block all read its scales (and some its high bits): mean lane reads a byte, at most.
READS = {
    GGMLType.Q2_K: 1.53, GGMLType.Q3_K: 1.9, GGMLType.Q4_K: 1.78, GGMLType.Q5_K: 2.19, GGMLType.Q6_K: 1.15,
    GGMLType.IQ4_XS: 1.42, GGMLType.Q5_1: 1.34, GGMLType.Q5_0: 1.28, GGMLType.Q4_1: 1.2, GGMLType.MXFP4: 1.53,
}  # fmt: skip
ALL_BUILDS = (GGMLType.Q4_K, GGMLType.Q8_0)  # every width, and the groups of CUDA: each build takes half a second
NEIGHBOURS = {GGMLType.MXFP4: 3}  # bytes at a row's ends that another SIMD group may fetch too: parts of whole words


@dataclass
class Matrix:
    type: GGMLType
    raw: np.ndarray  # (rows, row_bytes) uint8
    words: np.ndarray  # as adopted
    values: np.ndarray  # (rows, n_in) float32

    @property
    def n_in(self) -> int:
        return self.values.shape[1]


def host_cases(gtype: GGMLType) -> Iterator[tuple[str, Callable[[], None]]]:
    """Name and check, which raises AssertionError."""
    for n in ROWS:
        yield f"1 vector, {n} rows", partial(one_vector, gtype, n)
    for n in (2, 3, 7, 15) if gtype in ALL_BUILDS else (3, 15):
        yield f"{n} vectors and bias", partial(several_vectors, gtype, n)
    for width in (1, 4, 16) if gtype in ALL_BUILDS else (1, 4):
        yield f"experts, tiles of {width}", partial(experts, gtype, width)
    yield "decoded tile", partial(decoded_tile, gtype)
    yield "gathered rows", partial(gathered_rows, gtype)


def one_vector(gtype: GGMLType, n_out: int) -> None:
    m = matrix(gtype)
    x = vectors(1, m.n_in)
    run = run_linear(m, n_out, x)
    assert_product(run.outputs[0], x, m.values[:n_out])
    assert_fetched_once(m, n_out, run.counts["w"])
    assert lane_reads(m, n_out, run) <= READS.get(gtype, 1.12)


def several_vectors(gtype: GGMLType, n_x: int) -> None:
    """Three vectors run in the build for four: the fourth must neither read past x nor write past y."""
    m = matrix(gtype)
    x, bias = vectors(n_x, m.n_in), vectors(1, 33)[0]
    for target in ("metal", "cuda") if gtype in ALL_BUILDS else ("metal",):
        run = run_linear(m, 33, x, bias, target)
        assert_product(run.outputs[0] - bias, x, m.values[:33])
        assert_fetched_once(m, 33, run.counts["w"])


def experts(gtype: GGMLType, width: int) -> None:
    """Of 8 experts of 31 rows three are used, and read where they are, once for all of a tile's pairs; no byte of
    another is touched. A tile that is left over does nothing."""
    m = matrix(gtype, 8 * 31, 2)
    tiles = [(0, 0, 1), (5, 1, 3), (7, 4, 2), (7, 6, 0)] if width > 1 else [(0, 0, 1), (5, 1, 1), (7, 2, 1), (5, 3, 1)]
    n_pairs, share = (6, 1) if width > 1 else (4, 2)
    x = vectors(n_pairs // share, m.n_in)
    s = matvec_shape(gtype, width, "metal")
    run = run_kernel(
        block_kernel("linear_experts", gtype),
        [m.words, x, np.array(tiles, np.int32), np.array([31, m.n_in, share], np.int32)],
        [("ROWS", s.rows), ("NX", s.width), ("GROUPS", s.groups)],
        (32 * -(-31 // (s.rows * s.groups)), s.groups, len(tiles)), (32, s.groups, 1),
        [(n_pairs, 31)], ["float32"], ["w"],
    )  # fmt: skip
    values = m.values.reshape(8, 31, -1)
    for e, first, n in tiles:
        for i in range(first, first + n):
            assert_product(run.outputs[0][i : i + 1], x[i // share : i // share + 1], values[e])
    used, counts = [0, 5, 7], run.counts["w"]
    read = counts.owner[: m.raw.nbytes].reshape(8, -1) > 0
    assert read[used].all() and np.delete(read, used, 0).sum(axis=1).max() <= 2 * NEIGHBOURS.get(gtype, 0)
    if width > 1:
        shared = np.flatnonzero(counts.shared[: m.raw.nbytes]) % m.raw.shape[1]
        assert (np.minimum(shared, m.raw.shape[1] - 1 - shared) < NEIGHBOURS.get(gtype, 0)).all()


def decoded_tile(gtype: GGMLType) -> None:
    """The decoder, rounded."""
    m = matrix(gtype)
    found = run_rows(m, np.zeros(1, np.int32), 250, 7, "float16", False).outputs[0]
    assert np.array_equal(found, m.values[250:].astype(np.float16))


def gathered_rows(gtype: GGMLType) -> None:
    """The decoder, to the bit."""
    m = matrix(gtype)
    ids = np.array([256, 0, 31, 31], np.int32)
    assert np.array_equal(run_rows(m, ids, 0, 4, "float32", True).outputs[0], m.values[ids])


@cache
def matrix(gtype: GGMLType, n_rows: int = 257, n_blocks: int = 5) -> Matrix:
    """Five blocks a row: at 4 to 16 lanes a block some lanes have work and some have none."""
    n_in = BLOCKS[gtype].values * (n_blocks if BLOCKS[gtype].values > 4 else 33)
    raw = random_blocks(gtype, (n_rows, n_in), np.random.default_rng(gtype)).reshape(n_rows, -1)
    return Matrix(gtype, raw, words(raw), dequantize(raw, gtype, (n_rows, n_in)))


def words(raw: np.ndarray) -> np.ndarray:
    flat = raw.reshape(-1)
    return np.concatenate([flat, np.zeros(-flat.size % 4, np.uint8)]).view(np.uint32)


def vectors(n: int, n_in: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, n_in)).astype(np.float32)


def run_linear(m: Matrix, n_out: int, x: np.ndarray, bias: np.ndarray | None = None, target: str = "metal") -> Run:
    s = matvec_shape(m.type, x.shape[0], target)
    blocks = -(-n_out // (s.rows * s.groups))
    return run_kernel(
        block_kernel("linear", m.type),
        [words(m.raw[:n_out]), x, np.zeros(8, np.float32) if bias is None else bias,
         np.array([n_out, m.n_in, x.shape[0]], np.int32)],
        [("ROWS", s.rows), ("NX", s.width), ("GROUPS", s.groups), ("BIAS", int(bias is not None))],
        (32 * blocks, s.groups, 1), (32, s.groups, 1), [(x.shape[0], n_out)], ["float32"], ["w"],
    )  # fmt: skip


def run_rows(m: Matrix, ids: np.ndarray, first: int, n: int, dtype: str, gather: bool) -> Run:
    a_row = -(-m.n_in // BLOCKS[m.type].values * BLOCKS[m.type].parts // 32) * 32
    return run_kernel(
        block_kernel("decode_rows", m.type), [m.words, ids, np.array([m.n_in, first, a_row], np.int32)],
        [("T", dtype), ("GATHER", int(gather))], (a_row * n, 1, 1), (32, 1, 1), [(n, m.n_in)], [dtype],
    )  # fmt: skip


def assert_product(found: np.ndarray, x: np.ndarray, values: np.ndarray) -> None:
    """Within float32 rounding of the exact product: 4e-6 of |x| |w| summed (a sum of n terms in any order)."""
    exact = x.astype(np.float64) @ values.T.astype(np.float64)
    room = np.abs(x).astype(np.float64) @ np.abs(values).T.astype(np.float64)
    assert (np.abs(found - exact) <= 4e-6 * room + 1e-30).all()


def assert_fetched_once(m: Matrix, n_out: int, counts: Counts) -> None:
    """Every byte, by one SIMD group; a type in NEIGHBOURS may share that many bytes at each end of a row."""
    n_bytes, row_bytes = m.raw[:n_out].nbytes, m.raw.shape[1]
    assert (counts.owner[:n_bytes] > 0).all(), "a byte was never read"
    shared = np.flatnonzero(counts.shared[:n_bytes]) % row_bytes
    from_end = np.minimum(shared, row_bytes - 1 - shared)
    assert (from_end < NEIGHBOURS.get(m.type, 0)).all(), "a byte was fetched by two SIMD groups"


def lane_reads(m: Matrix, n_out: int, run: Run) -> float:
    """Lanes that read a byte, on average."""
    return float(run.counts["w"].reads[: m.raw[:n_out].nbytes].mean())
