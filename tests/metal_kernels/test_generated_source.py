"""What MLX makes of the kernels: the source it generates for Metal (test_metal_dialect.py checks its language), and the
CUDA form through nvcc where that is installed."""

from __future__ import annotations

import shutil

import pytest

from tests.metal_kernels.cases import block_cases, other_cases
from tests.metal_kernels.generate_sources import sources
from tests.metal_kernels.nvcc import compile_cases


def test_every_case_is_generated_in_ascii() -> None:
    """MLX hands sources to Metal as ASCII: one other byte, even in a comment, and there is no source at all."""
    expected = {c.label for c in (*block_cases("metal", (1, 16)), *other_cases())}
    assert set(sources()) == expected
    assert all(text.isascii() for text in sources().values())


def test_arguments_are_what_the_bodies_expect() -> None:
    text = sources()["linear Q4_K x1"]
    assert "const device uint32_t* w [[buffer(0)]]" in text
    assert "const constant int32_t* sizes [[buffer(3)]]" in text, "three sizes are few enough for the constant space"
    assert "uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]" in text
    for label, text in sources().items():
        assert "_shape" not in text and "_strides" not in text, f"{label} asks for shapes that no kernel uses"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_cuda_form_compiles_for_each_architecture() -> None:
    """A few; the kernel table has all, and its test sees to it that it is current."""
    cases = [c for c in block_cases("cuda", (1,)) if c.label in ("linear Q4_K x1", "experts MXFP4 x1", "rows Q6_K")]
    cases += [c for c in other_cases() if c.label in ("attend Q8_0 d128 x4", "store_q4_0")]
    for arch, uses in compile_cases(cases).items():
        assert len(uses) == 5 and not any(use.spill_bytes for use in uses), arch
