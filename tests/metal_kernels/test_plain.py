"""Kernels that read no weights, executed on the host: KV encoders, rope, glu and the two recurrences."""

from __future__ import annotations

import numpy as np
import pytest

from localinfer.backends.mlx.gpu_ops import _ACT
from localinfer.backends.mlx.kernels import plain_kernel
from localinfer.backends.reference.ops import ReferenceOps
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import quantize
from tests.metal_kernels.host import run_kernel

SIZES = (1, 31, 32, 33, 255, 256, 257)


def each(op: str, inputs: list[np.ndarray], template: list[tuple[str, int]], shape: tuple[int, ...]) -> np.ndarray:
    n = int(np.prod(shape))
    grid = (-(-n // 64) * 64, 1, 1)
    return run_kernel(plain_kernel(op), inputs, template, grid, (64, 1, 1), [shape], ["float32"]).outputs[0]


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_stored_blocks_are_ggmls_to_the_bit(kv_type: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, 32)).astype(np.float32)
    x[0], x[1, :], x[2] = 0, -1.5, np.arange(32) - 16  # zero, all equal, equal sizes of both signs
    x[3], x[4] = 1e-41, x[4] * 1e4
    x[5:60] = np.round(x[5:60] * 8) / 8  # ties
    n_bytes = 34 if kv_type == "q8_0" else 18
    run = run_kernel(
        plain_kernel(f"store_{kv_type}"), [x], [], (32 * len(x), 1, 1), (32, 1, 1), [(len(x), n_bytes)], ["uint8"]
    )
    expected = quantize(x, GGMLType[kv_type.upper()])
    assert np.array_equal(run.outputs[0], expected)


@pytest.mark.parametrize("act", _ACT)
@pytest.mark.parametrize("n", SIZES)
def test_glu(act: str, n: int) -> None:
    rng = np.random.default_rng(n)
    gate, up = (rng.standard_normal(n).astype(np.float32) * s for s in (30, 5))
    found = each("glu", [gate, up, np.array([n], np.int32)], [("ACT", _ACT[act])], (n,))
    expected = ReferenceOps().glu(gate, up, act)
    room = 1e-6 * np.abs(gate * up) + 3e-6 * np.abs(expected) + 1e-7  # gelu's tail is a difference of near equals
    assert (np.abs(found - expected) <= room).all()


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("n_dims", [2, 6, 10])
def test_rope_rotates_the_leading_values(interleaved: int, n_dims: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 3, 10)).astype(np.float32)
    angle = rng.standard_normal((5, n_dims // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    found = each("rope", [x, cos, sin, np.array([x.size, 3, 10, n_dims, interleaved], np.int32)], [], x.shape)
    expected = x.copy()
    a = slice(0, n_dims, 2) if interleaved else slice(0, n_dims // 2)
    b = slice(1, n_dims, 2) if interleaved else slice(n_dims // 2, n_dims)
    expected[..., a] = x[..., a] * cos[:, None] - x[..., b] * sin[:, None]
    expected[..., b] = x[..., a] * sin[:, None] + x[..., b] * cos[:, None]
    assert np.allclose(found, expected, atol=1e-6)


def recurrence(op: str, inputs: list[np.ndarray], memory: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    n_heads, n_rows, n = memory.shape
    return run_kernel(
        plain_kernel(op), [*inputs, memory, np.array(sizes, np.int32)], [("COLUMNS", -(-n // 32))],
        (32, n_rows, n_heads), (32, 1, 1), [(sizes[0], n_heads, n_rows), memory.shape], ["float32", "float32"],
    ).outputs  # fmt: skip


@pytest.mark.parametrize("n", [1, 16, 33])
@pytest.mark.parametrize("tiled", [0, 1])
def test_scan_follows_its_recurrence(n: int, tiled: int) -> None:
    rng = np.random.default_rng(n)
    T, H, P, G = 5, 4, 3, 2
    x, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((T, H, P), (T, G, n), (T, G, n)))
    step = rng.uniform(0.1, 1, (T, H)).astype(np.float32)
    decay = rng.uniform(0.5, 1, (T, H, n if tiled else 1)).astype(np.float32)
    memory = rng.standard_normal((H, P, n)).astype(np.float32)
    y, after = recurrence("scan", [x, step, decay, b, c], memory, [T, H, P, n, G, decay.shape[2], tiled])
    group = np.arange(H) % G if tiled else np.arange(H) // (H // G)
    m = memory.astype(np.float64)
    for t in range(T):
        m = m * decay[t][:, None, :] + (step[t][:, None] * x[t])[:, :, None] * b[t][group][:, None, :]
        assert np.allclose(y[t], np.einsum("hpn,hn->hp", m, c[t][group]), atol=1e-5)
    assert np.allclose(after, m, atol=1e-5)


@pytest.mark.parametrize("n", [1, 32, 40])
def test_delta_rule_follows_its_recurrence(n: int) -> None:
    rng = np.random.default_rng(n)
    T, H, P, G = 5, 4, 3, 2
    q, k, v = (rng.standard_normal(s).astype(np.float32) * 0.3 for s in ((T, G, n), (T, G, n), (T, H, P)))
    decay, rate = (rng.uniform(0.5, 1, (T, H)).astype(np.float32) for _ in range(2))
    memory = rng.standard_normal((H, P, n)).astype(np.float32)
    y, after = recurrence("delta_rule", [q, k, v, decay, rate], memory, [T, H, P, n, G, 0])
    group = np.arange(H) // (H // G)
    m = memory.astype(np.float64)
    for t in range(T):
        m = m * decay[t][:, None, None]
        error = v[t] - np.einsum("hpn,hn->hp", m, k[t][group])
        m = m + (rate[t][:, None] * error)[:, :, None] * k[t][group][:, None, :]
        assert np.allclose(y[t], np.einsum("hpn,hn->hp", m, q[t][group]), atol=1e-5)
    assert np.allclose(after, m, atol=1e-5)
