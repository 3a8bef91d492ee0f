"""The source MLX generates for Metal against Metal's rules (metal_dialect.py), and the checker against mistakes."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import pytest

from localinfer.backends.mlx.gpu_attention import attend_shape
from localinfer.backends.mlx.kernels import BLOCKS, dialect
from tests.metal_kernels import metal_dialect
from tests.metal_kernels.generate_sources import sources

pytestmark = pytest.mark.skipif(find_spec("clang") is None, reason="libclang is not installed (pip install libclang)")
MOST_BUFFERS = 31


def labels() -> list[str]:
    """One case of each text: every decoder once, every other body once."""
    others = ["experts Q4_K x16", "rows Q4_K", "attend Q8_0 d256 x4", "attend Q4_0 d128 x4", "attend F16 d64 x1"]
    plain = ["merge_attention", "store_q8_0", "store_q4_0", "rope", "glu", "scan", "delta_rule"]
    return [*(f"linear {t.name} x16" for t in BLOCKS), *others, *plain]


def test_every_case_is_taken_with_its_address_spaces() -> None:
    for label, text in sources().items():
        assert not metal_dialect.refusals(text), label


@pytest.mark.parametrize("label", labels())
def test_nothing_in_a_kernel_is_outside_metals_language(label: str) -> None:
    looked = metal_dialect.look(sources()[label])
    assert not looked.faults
    assert looked.shared_bytes <= metal_dialect.SHARED_BYTES and 2 <= looked.buffers <= MOST_BUFFERS
    assert looked.shared_bytes == {"attend Q8_0 d256 x4": 4608, "store_q4_0": 128}.get(label, looked.shared_bytes)


def test_threadgroup_memory_is_enough_at_every_head_size() -> None:
    """attend.metal keeps ROWS queries and 32 shares of each; DeepSeek's keys have 576 values."""
    for d_k in (*range(32, 544, 32), 576, 1024):
        for n_rows in (1, 2, 4, 8, 64, 256):
            _, rows = attend_shape(d_k, n_rows)
            assert 4 * rows * (d_k + 32) <= metal_dialect.SHARED_BYTES // 2  # two threadgroups a core at least


@cache
def generated(body: str, header: str = "") -> str:
    """As MLX writes it, around one body."""
    return (
        f"{dialect('metal')}\n{header}\ntemplate <int N>\n[[kernel]] void custom_kernel_trial(\n"
        "  const device float* x [[buffer(0)]],\n  const constant int32_t* sizes [[buffer(1)]],\n"
        "  device float* y [[buffer(2)]],\n  uint3 thread_position_in_grid [[thread_position_in_grid]]) {\n"
        f"{body}\n}}\n"
        'template [[host_name("custom_kernel_trial_4")]] [[kernel]] decltype(custom_kernel_trial<4>) '
        "custom_kernel_trial<4>;\n"
    )


def test_a_sound_body_passes() -> None:
    text = generated("LI_SHARED float s[8 * N]; s[0] = x[sizes[0]]; LI_BARRIER; y[0] = s[0];")
    assert not metal_dialect.refusals(text)
    assert metal_dialect.look(text) == metal_dialect.Looked([], 128, 3)


TAKES_DEVICE = "LI_FN float first(LI_IN(float) p) { return p[0]; }"


@pytest.mark.parametrize(
    ("body", "header"),
    [
        ("LI_SHARED float s[N]; y[0] = first(s);", TAKES_DEVICE),
        ("float s[N]; s[0] = 0.0f; y[0] = first(s);", TAKES_DEVICE),
        ("y[0] = float(first((const constant float*)sizes));", TAKES_DEVICE),
        ("const device uint4* p = (const thread uint4*)x; y[0] = p[0].x;", ""),
        ("y[0] = sqrtf(x[0]);", ""),
        ("if constexpr (N > 2) y[0] = 0.0f;", ""),
        ("float s[sizes[0]]; y[0] = s[0];", ""),
        ("y[0] = simd_sum(0.5 * x[0]);", ""),
        ("y[0] = as_type<float>(ushort(1));", ""),
    ],
    ids=["threadgroup", "thread", "constant", "cast", "C", "C++17", "VLA", "double overload", "as_type"],
)
def test_what_clang_refuses(body: str, header: str) -> None:
    assert metal_dialect.refusals(generated(body, header))


@pytest.mark.parametrize(
    ("body", "header", "fault"),
    [
        ("y[0] = 0.5 * x[0];", "", "double precision"),
        ("y[0] = f(3);", "LI_FN int f(int n) { return n ? f(n - 1) : 0; }", "calls itself"),
        ("y[0] = f(3);", "int g(int); LI_FN int f(int n) { return g(n); } LI_FN int g(int n) { return f(n); }",
         "calls itself"),
        ("float a[4]; f(a); y[0] = a[0];", "LI_FN void f(float* to) { to[0] = 0.0f; }", "`to` points without"),
        ("y[0] = TABLE[sizes[0]];", "const float TABLE[2] = {0, 1};", "`TABLE` at file scope"),
        ("static int n = 0; y[0] = n++;", "", "`n` is static"),
        ("auto f = [](float v) { return v; }; y[0] = f(x[0]);", "", "lambda_expr is not in Metal"),
        ("S s; y[0] = s.f();", "struct S { virtual int f() { return 1; } };", "`f` is virtual"),
    ],
)  # fmt: skip
def test_what_the_syntax_tree_shows(body: str, header: str, fault: str) -> None:
    found = metal_dialect.look(generated(body, header)).faults
    assert any(fault in line for line in found), found
