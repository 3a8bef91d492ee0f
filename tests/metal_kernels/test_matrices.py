"""Matrix kernels of every block type, executed on the host, against the numpy decoders; weight bytes fetched once."""

from __future__ import annotations

import pytest

from localinfer.backends.mlx.kernels import BLOCKS, has_kernel
from localinfer.formats.ggml_types import GGMLType
from tests.metal_kernels.matrix_cases import host_cases

CASES = [
    pytest.param(check, id=f"{gtype.name}, {name}") for gtype in BLOCKS for name, check in host_cases(gtype)
]  # fmt: skip


@pytest.mark.parametrize("check", CASES)
def test_matrix_kernels(check) -> None:
    check()


def test_kernel_table_agrees_with_the_format() -> None:
    for gtype, g in BLOCKS.items():
        assert g.bytes * gtype.block_values == gtype.block_bytes * g.values
        assert g.bytes % g.alignment == 0 and g.values % gtype.block_values == 0
    assert not has_kernel(GGMLType.IQ2_XS, 256) and not has_kernel(GGMLType.F16, 258) and has_kernel(GGMLType.Q4_K, 512)
