"""Attention over the paged cache against float64, and the promise that bits depend on nothing but the sequence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from localinfer.kv.spec import window_pages
from tests.cpu_kernels.attention_kernels import Floats, Shape, Store, levels, library, random_qkv, reference

FLOAT_TOLERANCE = 4e-6  # outputs are near 1; chains of at most 256 float32 steps, and exp within 1 ulp
TYPE_PAIRS = [(k, v) for k in ("f32", "f16", "q8_0", "q4_0") for v in ("f32", "f16", "q8_0", "q4_0")]


@pytest.fixture(params=["scalar", "best"])
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each test with this runs on plain C and on the best instruction set."""
    name = levels()[0 if request.param == "scalar" else -1]
    assert library().li_cpu_select(name.encode()) == 0
    yield name
    library().li_cpu_select(None)


def tolerance(shape: Shape, q: Floats, k: Floats, v: Floats) -> float:
    """A rounded query is off by half of max|q| / 32767 in each value: scores by that times sum |k|, and an output by
    at most twice the error of the scores times max|v|."""
    if shape.k_type in ("f32", "f16"):
        return FLOAT_TOLERANCE
    score = shape.scale * np.abs(k).sum(-1).max() * np.abs(q).max() / 32767 / 2
    return FLOAT_TOLERANCE + 2 * float(score * np.abs(v).max())


def check(shape: Shape, store: Store, history: list[int], tries: list[int]) -> None:
    """Append chunks of `history` tokens, then try each T at that position, against float64 over what is stored."""
    end = sum(history)
    q, k, v = random_qkv(shape, end + max(tries), seed=5)
    stored_k, stored_v = k.copy(), v.copy()
    at = 0
    for n in [*history, *tries]:
        here = min(at, end)
        part = slice(here, here + n)
        out = store.run(here, q[part], k[part], v[part])
        stored_k[part], stored_v[part] = store.read(here, n)
        expected = reference(shape, here, q[part], stored_k, stored_v, store)
        assert np.abs(out - expected).max() < tolerance(shape, q, stored_k, stored_v), (here, n)
        at += n


@pytest.mark.parametrize("start", [0, 5, 16, 100, 511, 1000])
def test_every_number_of_tokens_from_every_start(start: int) -> None:
    shape = Shape(6, 2, 32, 32, "f16", "f16", scale=0.2)
    store = Store(shape, start + 64)
    history = [64] * (start // 64) + [start % 64] * (start % 64 > 0)
    check(shape, store, history, [1, 2, 3, 15, 16, 17, 33, 64])


@pytest.mark.parametrize("types", TYPE_PAIRS, ids="/".join)
def test_types(level: str, types: tuple[str, str]) -> None:
    shape = Shape(6, 2, 64, 32, *types)
    check(shape, Store(shape, 100), [40], [1, 2, 5, 33])


@pytest.mark.parametrize("window", [1, 4, 16, 33, 512])
@pytest.mark.parametrize("kv_type", ["f32", "q8_0"])
def test_windows_in_rings_that_wrapped(window: int, kv_type: str) -> None:
    shape = Shape(4, 2, 32, 32, kv_type, kv_type, window=window)
    ring = window_pages(window, 64)
    n = ring * 16 * 2 + 50
    store = Store(shape, n + 64, ring_pages=ring)
    check(shape, store, [64] * (n // 64) + [n % 64], [1, 2, 17, 64])


@pytest.mark.parametrize(
    "changes",
    [
        {"softcap": 5.0},
        {"sinks": True},
        {"alibi": True},
        {"chunk": 24},
        {"window": 20, "sinks": True, "softcap": 3.0, "alibi": True},
        {"k_rotate": 16, "v_rotate": 8},
    ],
    ids=lambda c: "+".join(c),
)
def test_variants(level: str, changes: dict[str, object]) -> None:
    shape = Shape(6, 2, 16, 24, scale=0.3).but(**changes)
    check(shape, Store(shape, 300), [64, 64], [1, 3, 40])


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (5, 5), (9, 3), (4, 1), (28, 4), (40, 2)])
def test_query_heads_per_kv_head(heads: int, kv_heads: int) -> None:
    shape = Shape(heads, kv_heads, 16, 16, scale=0.25)
    check(shape, Store(shape, 400), [64, 64, 64, 64, 20], [1, 2, 3, 9, 33])


@pytest.mark.parametrize(
    ("d_k", "d_v"),
    [
        (64, 64),
        (80, 80),
        (96, 96),
        (112, 112),
        (128, 128),
        (192, 128),
        (256, 256),
        (576, 512),
        (1, 1),
        (7, 9),
        (36, 20),
    ],
)
def test_head_sizes(level: str, d_k: int, d_v: int) -> None:
    shape = Shape(3, 1, d_k, d_v, "f16", "f16", scale=d_k**-0.5)
    check(shape, Store(shape, 80), [20], [1, 2, 19])


def test_far_positions_have_longer_spans() -> None:
    shape = Shape(2, 1, 8, 8, scale=0.35)
    store = Store(shape, 6300, max_tokens=512)
    check(shape, store, [512] * 12, [1, 5, 150])


SEQUENCES = [
    Shape(9, 3, 64, 64, "f16", "f16"),
    Shape(9, 3, 64, 64, "q8_0", "q8_0"),
    Shape(4, 1, 96, 96, "q4_0", "q4_0", window=40, softcap=20.0, sinks=True, k_rotate=32),
    Shape(7, 7, 20, 12, "f32", "f16", alibi=True, scale=0.2),
    Shape(14, 2, 32, 64, "f16", "q4_0", chunk=300),
    Shape(3, 3, 256, 256, "q4_0", "q8_0", v_rotate=64),
]


def run_in(shape: Shape, lengths: list[int], n_threads: int, seed: int) -> bytes:
    """Results of a whole sequence cut into `lengths`; seed 0: in order on thread 0, else pages and items shuffled."""
    n = sum(lengths)
    ring = window_pages(shape.window, 512) if shape.window else 0
    store = Store(shape, n, ring_pages=ring, seed=seed, max_tokens=max(lengths), n_threads=n_threads)
    q, k, v = random_qkv(shape, n, seed=9)
    rng = np.random.default_rng(seed) if seed else None
    outputs, at = [], 0
    for length in lengths:
        part = slice(at, at + length)
        outputs.append(store.run(at, q[part], k[part], v[part], rng))
        at += length
    return np.concatenate(outputs).tobytes()


@pytest.mark.parametrize("shape", SEQUENCES, ids=lambda s: f"{s.n_heads}of{s.d_k}-{s.k_type}-{s.v_type}")
def test_bits_do_not_depend_on_chunks_threads_or_order(shape: Shape) -> None:
    n = 560
    whole = run_in(shape, [n], 1, seed=0)
    assert run_in(shape, [1] * n, 2, seed=1) == whole
    assert run_in(shape, [16] * (n // 16), 3, seed=2) == whole
    assert run_in(shape, [7, 64, 33, 2, 1, 150, 3, 300], 8, seed=3) == whole
    assert run_in(shape, [500, 60], 64, seed=4) == whole


@pytest.mark.parametrize("shape", SEQUENCES, ids=lambda s: f"{s.n_heads}of{s.d_k}-{s.k_type}-{s.v_type}")
def test_bits_do_not_depend_on_the_instruction_set(shape: Shape) -> None:
    lib = library()
    found = {}
    for name in levels():
        assert lib.li_cpu_select(name.encode()) == 0
        found[name] = run_in(shape, [270, 1, 5, 12], 2, seed=0)
    lib.li_cpu_select(None)
    assert len(set(found.values())) == 1


def test_what_lies_behind_the_end_does_not_matter() -> None:
    """A truncated cache: later slots of the last page hold NaN."""
    shape = Shape(4, 2, 32, 32, "f16", "f16")
    q, k, v = random_qkv(shape, 40, seed=2)
    clean, dirty = Store(shape, 64), Store(shape, 64)
    bad = np.full_like(k, np.nan)
    dirty.run(0, q, bad, bad)
    for store in (clean, dirty):
        store.run(0, q[:20], k[:20], v[:20])
    for n in (1, 3, 17):
        part = slice(20, 20 + n)
        expected = clean.run(20, q[part], k[part], v[part])
        assert np.isfinite(expected).all()
        assert (dirty.run(20, q[part], k[part], v[part]) == expected).all()


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
def test_a_nan_is_not_hidden(kv_type: str) -> None:
    shape = Shape(2, 1, 32, 32, kv_type, kv_type)
    for spoiled in range(3):
        store = Store(shape, 8)
        arrays = random_qkv(shape, 4, seed=3)
        arrays[spoiled][2, 0, 3] = np.nan
        out = store.run(0, *arrays)
        assert np.isfinite(out[:2]).all()
        assert not np.isfinite(out[2, 0]).all()


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
def test_stored_values_are_within_the_types_step(level: str, kv_type: str) -> None:
    shape = Shape(2, 2, 64, 96, kv_type, kv_type)
    store = Store(shape, 50)
    q, k, v = random_qkv(shape, 50, seed=4)
    k[7], v[7] = 0, 0
    k[8, 0, :32] *= 1e4
    store.run(0, q, k, v)
    for given, stored in zip((k, v), store.read(0, 50), strict=True):
        blocks = given.reshape(-1, 32).astype(np.float64)
        error = np.abs(stored.reshape(-1, 32) - blocks)
        largest = np.abs(blocks).max(1, keepdims=True)
        step = {
            "f32": 0.0 * blocks,
            "f16": np.abs(blocks) * 2.0**-10 + 2.0**-24,
            "q8_0": largest / 127,
            "q4_0": largest / 8,
        }
        # half a step, and an f16 scale is off by 2^-11 of itself; q4_0 reaches only to 7 steps on one side, and may
        # cut the largest values where that serves the others
        slack = {"f32": 0.0, "f16": 0.5, "q8_0": 0.5 + 0.07, "q4_0": 1.3}[kv_type]
        assert (error <= slack * step[kv_type]).all()


def test_q4_0_loses_less_than_the_largest_value_at_minus_8() -> None:
    """Against ggml's rule, scale = largest value / -8, on normally distributed values."""
    shape = Shape(1, 1, 256, 256, "q4_0", "q4_0")
    store = Store(shape, 64)
    q, k, v = random_qkv(shape, 64, seed=8)
    store.run(0, q, k, v)
    blocks = k.reshape(-1, 32)
    end = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    scale = (end / -8).astype(np.float16).astype(np.float32)
    plain = np.clip(np.rint(blocks / scale), -8, 7) * scale
    error = np.square(store.read(0, 64)[0].reshape(-1, 32) - blocks).sum(1)
    plain_error = np.square(plain - blocks).sum(1)
    assert (error <= plain_error * 1.001 + 1e-9).all()
    assert error.sum() < 0.95 * plain_error.sum()


def test_rotation_spreads_outliers() -> None:
    """Two channels twenty times larger than the rest, as in real keys: q4_0 loses less of them when rotated."""
    q, k, v = random_qkv(Shape(1, 1), 64, seed=6)
    k[:, :, [3, 40]] *= 20
    errors = []
    for rotate in (0, 64):
        shape = Shape(1, 1, k_type="q4_0", k_rotate=rotate)
        store = Store(shape, 64)
        store.run(0, q, k, v)
        stored = store.read(0, 64)[0]
        errors.append(np.square(np.einsum("tgd,shd->ts", stored - k, q)).mean())
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize(("kv_type", "share"), [("f32", 2.0), ("q4_0", 0.6)])
def test_what_all_keys_share_may_be_left_out(kv_type: str, share: float) -> None:
    """Softmax does not see it; 4 bits then go further. Read back, keys are whole."""
    shape = Shape(k_type=kv_type, v_type="f32", k_rotate=64 if kv_type == "q4_0" else 0, window=40)
    q, k, v = random_qkv(shape, 64, 3)
    common = np.random.default_rng(4).normal(0, 3, k.shape[1:]).astype(np.float32)
    k += common
    errors = []
    for offset in (None, common):
        store = Store(shape, 64)
        store.kv.k_offset = None if offset is None else offset.ctypes.data
        out = store.run(0, q, k, v)
        errors.append(np.abs(out - reference(shape, 0, q, k, v, store)).mean())
        keys, _ = store.read(0, 64)
        assert np.abs(keys - k).max() < (1e-5 if kv_type == "f32" else 1.5)
    assert errors[1] < share * errors[0] + 1e-6
