"""The shim itself: it must see what a GPU would not forgive, or the other tests prove nothing."""

from __future__ import annotations

import numpy as np
import pytest

from localinfer.backends.mlx.kernels import Kernel
from tests.metal_kernels.host import run_kernel

LOADS = "LI_FN uint32_t word(LI_IN(uint8_t) p, int at) { return load_u32(p + at); }"


def run(source: str, x: np.ndarray, n_out: int = 32, group: int = 32, header: str = LOADS):
    kernel = Kernel("trial", ("x",), ("y",), header, source)
    return run_kernel(kernel, [x], [], (group, 1, 1), (group, 1, 1), [(n_out,)], ["float32"], ["x"])


def test_simd_sum_and_maximum_are_over_32_lanes() -> None:
    body = """const int i = thread_position_in_grid.x;
              y[i] = simd_sum(x[i]) + 1000.0f * simd_max(x[i]);"""
    x = np.arange(64, dtype=np.float32)
    found = run(body, x, 64, 64).outputs[0].reshape(2, 32)
    assert (found[0] == x[:32].sum() + 1000 * 31).all() and (found[1] == x[32:].sum() + 1000 * 63).all()


def test_barrier_orders_shared_memory() -> None:
    """Thread i reads what thread 63 - i of another SIMD group wrote before the barrier."""
    body = """LI_SHARED float s[64]; const int i = thread_position_in_grid.x;
              s[i] = x[i]; LI_BARRIER; y[i] = s[63 - i];"""
    x = np.arange(64, dtype=np.float32)
    assert (run(body, x, 64, 64).outputs[0] == x[::-1]).all()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y[thread_index_in_simdgroup] = x[thread_index_in_simdgroup + 1];", "access at byte 128 of a buffer of 128"),
        ("y[thread_index_in_simdgroup + 1] = 0;", "access at byte 128"),
        ("y[thread_index_in_simdgroup] = word(LI_BYTES(x), 2);", "load at byte 2 is not aligned to 4"),
        (
            "y[thread_index_in_simdgroup] = thread_index_in_simdgroup < 7 ? simd_sum(1.0f) : 0.0f;",
            "7 of 32 threads wait",
        ),
        ("if (thread_index_in_simdgroup) { LI_BARRIER; } y[thread_index_in_simdgroup] = 0;", "31 of 32 threads wait"),
        (
            "y[thread_index_in_simdgroup] = thread_index_in_simdgroup < 7 ? simd_sum(1.0f) : simd_max(1.0f);",
            "different operations",
        ),
        ("if (thread_index_in_simdgroup) y[thread_index_in_simdgroup] = 0;", "not written once everywhere"),
        ("y[0] = 0;", "not written once everywhere"),
    ],
)
def test_mistakes_are_named(body: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        run(body, np.zeros(32, np.float32))


def test_kernels_still_run_after_a_divergent_one() -> None:
    with pytest.raises(AssertionError, match="31 of 32"):
        run(
            "if (thread_index_in_simdgroup) { LI_BARRIER; } y[thread_index_in_simdgroup] = 0;", np.zeros(32, np.float32)
        )
    assert run("y[thread_index_in_simdgroup] = 3;", np.zeros(32, np.float32)).outputs[0].sum() == 96


def test_loads_are_counted_by_byte_and_by_group() -> None:
    body = """const int i = thread_position_in_grid.x;
              y[i] = i < 32 ? load_u16(LI_BYTES(x) + 2 * i) : load_u8(LI_BYTES(x) + 2);"""
    counts = run(body, np.zeros(32, np.float32), 64, 64).counts["x"]
    assert counts.reads[:4].tolist() == [1, 1, 33, 1]
    assert counts.shared.sum() == 1 and counts.shared[2] == 1
    assert (counts.owner[:64] == 1).all() and (counts.owner[64:] == 0).all()


def test_halves_round_to_even() -> None:
    kernel = Kernel(
        "rounding", ("x",), ("a", "b"), "", "const int i = thread_index_in_simdgroup; a[i] = x[i]; b[i] = x[i];"
    )
    x = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    out = run_kernel(kernel, [x], [], (32, 1, 1), (32, 1, 1), [(32,), (32,)], ["float16", "bfloat16"]).outputs
    assert (out[0] == x.astype(np.float16)).all()
    back = (out[1].astype(np.uint32) << 16).view(np.float32)
    assert (np.abs(back - x) <= np.abs(x) * 2.0**-8).all()
