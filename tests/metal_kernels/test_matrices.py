"""Matrix kernels of every block type, executed on the host, against the numpy decoders; weight bytes fetched once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from localinfer.backends.mlx.gpu_linear import matvec_shape
from localinfer.backends.mlx.kernels import BLOCKS, block_kernel, has_kernel
from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import random_blocks
from tests.metal_kernels.host import Run, run_kernel

TYPES = list(BLOCKS)
ROWS = (1, 2, 3, 31, 32, 33, 255, 256, 257)
# Lanes that share a block all read its scales (and some its high bits): mean lane reads a byte, at most.
READS = {
    GGMLType.Q2_K: 1.53, GGMLType.Q3_K: 1.9, GGMLType.Q4_K: 1.78, GGMLType.Q5_K: 2.19, GGMLType.Q6_K: 1.15,
    GGMLType.IQ4_XS: 1.42, GGMLType.Q5_1: 1.34, GGMLType.Q5_0: 1.28, GGMLType.Q4_1: 1.2,
}  # fmt: skip


@dataclass
class Matrix:
    type: GGMLType
    raw: np.ndarray  # (rows, row_bytes) uint8
    words: np.ndarray  # as adopted
    values: np.ndarray  # (rows, n_in) float32

    @property
    def n_in(self) -> int:
        return self.values.shape[1]


@cache
def matrix(gtype: GGMLType, n_rows: int = 257, n_blocks: int = 5) -> Matrix:
    """Five blocks a row: at 4 to 16 lanes a block some lanes have work and some have none."""
    n_in = BLOCKS[gtype].values * (n_blocks if BLOCKS[gtype].values > 4 else 33)
    raw = random_blocks(gtype, (n_rows, n_in), np.random.default_rng(gtype)).reshape(n_rows, -1)
    return Matrix(gtype, raw, words(raw), dequantize(raw, gtype, (n_rows, n_in)))


def words(raw: np.ndarray) -> np.ndarray:
    flat = raw.reshape(-1)
    return np.concatenate([flat, np.zeros(-flat.size % 4, np.uint8)]).view(np.uint32)


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


def vectors(n: int, n_in: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, n_in)).astype(np.float32)


def assert_product(found: np.ndarray, x: np.ndarray, values: np.ndarray) -> None:
    """Within float32 rounding of the exact product: 4e-6 of |x| |w| summed (a sum of n terms in any order)."""
    exact = x.astype(np.float64) @ values.T.astype(np.float64)
    room = np.abs(x).astype(np.float64) @ np.abs(values).T.astype(np.float64)
    assert (np.abs(found - exact) <= 4e-6 * room + 1e-30).all()


@pytest.mark.parametrize("gtype", TYPES, ids=lambda t: t.name)
def test_one_vector_at_odd_row_counts_reads_each_byte_once(gtype: GGMLType) -> None:
    m = matrix(gtype)
    x = vectors(1, m.n_in)
    for n_out in ROWS:
        run = run_linear(m, n_out, x)
        assert_product(run.outputs[0], x, m.values[:n_out])
        counts, n_bytes = run.counts["w"], m.raw[:n_out].nbytes
        assert (counts.owner[:n_bytes] > 0).all(), "a byte was never read"
        assert not counts.shared[:n_bytes].any(), "a byte was fetched by two SIMD groups"
        assert counts.reads[:n_bytes].mean() <= READS.get(gtype, 1.12)


@pytest.mark.parametrize("gtype", TYPES, ids=lambda t: t.name)
def test_several_vectors_and_bias_read_each_byte_once(gtype: GGMLType) -> None:
    """Three vectors run in the build for four: the fourth must neither read past x nor write past y."""
    m = matrix(gtype)
    x, bias = vectors(3, m.n_in), vectors(1, 33)[0]
    run = run_linear(m, 33, x, bias)
    assert_product(run.outputs[0] - bias, x, m.values[:33])
    counts, n_bytes = run.counts["w"], m.raw[:33].nbytes
    assert (counts.owner[:n_bytes] > 0).all() and not counts.shared[:n_bytes].any()


@pytest.mark.parametrize("gtype", [GGMLType.Q4_K, GGMLType.Q6_K, GGMLType.Q8_0], ids=lambda t: t.name)
@pytest.mark.parametrize("target", ["metal", "cuda"])
def test_sixteen_vectors(gtype: GGMLType, target: str) -> None:
    m = matrix(gtype)
    x = vectors(15, m.n_in)
    run = run_linear(m, 35, x, target=target)
    assert_product(run.outputs[0], x, m.values[:35])
    assert not run.counts["w"].shared[: m.raw[:35].nbytes].any()


@pytest.mark.parametrize(
    "gtype", [GGMLType.Q4_0, GGMLType.Q4_K, GGMLType.Q6_K, GGMLType.MXFP4], ids=lambda t: t.name
)  # fmt: skip
@pytest.mark.parametrize("share", [1, 2])
def test_experts_are_read_where_they_are(gtype: GGMLType, share: int) -> None:
    """Of 8 experts of 31 rows three are used; no byte of another is touched."""
    m = matrix(gtype, 8 * 31, 2)
    chosen = np.array([5, 0, 7, 7, 5, 5], np.int32)
    x = vectors(len(chosen) // share, m.n_in)
    s = matvec_shape(gtype, 1, "metal")
    run = run_kernel(
        block_kernel("linear_experts", gtype), [m.words, x, chosen, np.array([31, m.n_in, share], np.int32)],
        [("ROWS", s.rows), ("GROUPS", s.groups)], (32 * -(-31 // (s.rows * s.groups)), s.groups, 6), (32, s.groups, 1),
        [(6, 31)], ["float32"], ["w"],
    )  # fmt: skip
    experts = m.values.reshape(8, 31, -1)
    for i, e in enumerate(chosen):
        assert_product(run.outputs[0][i : i + 1], x[i // share : i // share + 1], experts[e])
    used = run.counts["w"].owner[: m.raw.nbytes].reshape(8, -1) > 0
    assert used.all(axis=1).tolist() == [e in chosen for e in range(8)] and used.any(axis=1).sum() == 3


def run_rows(m: Matrix, ids: np.ndarray, first: int, n: int, dtype: str, gather: bool) -> Run:
    units = m.n_in // BLOCKS[m.type].values * BLOCKS[m.type].parts
    return run_kernel(
        block_kernel("decode_rows", m.type), [m.words, ids, np.array([m.n_in, first], np.int32)],
        [("T", dtype), ("GATHER", int(gather))], (-(-units // 32) * 32, n, 1), (32, 1, 1), [(n, m.n_in)], [dtype],
    )  # fmt: skip


@pytest.mark.parametrize("gtype", TYPES, ids=lambda t: t.name)
def test_decoded_tile_is_the_decoder_rounded(gtype: GGMLType) -> None:
    m = matrix(gtype)
    found = run_rows(m, np.zeros(1, np.int32), 250, 7, "float16", False).outputs[0]
    assert np.array_equal(found, m.values[250:].astype(np.float16))


@pytest.mark.parametrize("gtype", [GGMLType.Q5_1, GGMLType.IQ4_XS, GGMLType.Q3_K], ids=lambda t: t.name)
def test_gathered_rows_are_the_decoder_to_the_bit(gtype: GGMLType) -> None:
    m = matrix(gtype)
    ids = np.array([256, 0, 31, 31], np.int32)
    assert np.array_equal(run_rows(m, ids, 0, 4, "float32", True).outputs[0], m.values[ids])


def test_kernel_table_agrees_with_the_format() -> None:
    for gtype, g in BLOCKS.items():
        assert g.bytes * gtype.block_values == gtype.block_bytes * g.values
        assert g.bytes % g.alignment == 0 and g.values % gtype.block_values == 0
    assert not has_kernel(GGMLType.IQ2_XS, 256) and not has_kernel(GGMLType.F16, 258) and has_kernel(GGMLType.Q4_K, 512)
