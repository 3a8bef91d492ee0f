"""The MLX KV cache: bytes as priced, encodings to the bit, rings, truncation."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.mlx.kv import MLXKV, Slots
from localinfer.backends.mlx.kv_codec import decode, encode
from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import quantize
from localinfer.kv.spec import PAGE_TOKENS, KVLayer, KVSpec, checkpoint_pages, layer_pages


def layer(kv_type: str = "f32", window: int = 0, n_ctx: int = 128, chunk: int = 16, **more) -> KVLayer:
    kind = "window" if window else "full"
    return KVLayer(kind, 2, 32, 64, kv_type, kv_type, layer_pages(n_ctx, window, chunk), window, **more)


def spec(*layers: KVLayer, chunk: int = 16) -> KVSpec:
    return KVSpec(128, chunk, layers)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
def test_bytes_are_what_the_planner_prices(kv_type: str) -> None:
    s = spec(layer(kv_type), layer(kv_type, window=20), layer(kv_type, v_in_k=True), layer(kv_type, state_bytes=4096))
    assert MLXKV(s).n_bytes == s.n_bytes


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_encoding_and_decoding_are_ggmls_to_the_bit(kv_type: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((40, 3, 64)).astype(np.float32)
    x[0], x[1] = 0, np.round(x[1] * 4) / 4
    x[2, 0, :32], x[2, 1, :32] = 1e-41, np.arange(32) - 16
    kind = GGMLType[kv_type.upper()]
    expected = quantize(x, kind)
    stored = encode(mx.array(x), kv_type)
    assert np.array_equal(np.array(stored).view(np.uint8), expected)
    assert np.array_equal(np.array(decode(stored, kv_type, 64)), dequantize(expected, kind, x.shape))


def fill(kv: MLXKV, n: int, rng: np.random.Generator, history: list[np.ndarray]) -> Slots:
    k = rng.standard_normal((n, 2, 32)).astype(np.float32)
    slots = kv.append(0, mx.array(k), mx.array(rng.standard_normal((n, 2, 64)).astype(np.float32)))
    kv.length += n
    history.extend(k)
    return slots


@pytest.mark.parametrize("window", [0, 5, 40])
@pytest.mark.parametrize("chunks", [(16, 16, 16, 16, 16, 16), (1,) * 90, (7, 16, 3, 16, 16, 1, 16)])
def test_slots_hold_the_positions_they_say(window: int, chunks: tuple[int, ...]) -> None:
    kv, history = MLXKV(spec(layer(window=window))), []
    rng = np.random.default_rng(0)
    for n in chunks:
        slots = fill(kv, n, rng, history)
        positions = slots.positions()
        keys = np.array(kv.read(0, 0, slots.n_slots)[0]).transpose(1, 0, 2)
        needed = range(max(0, kv.length - n - window + 1) if window else 0, kv.length)
        assert set(needed) <= set(positions.tolist()), "a position in the window is missing"
        assert np.array_equal(keys, np.array(history)[positions])


def test_ring_is_in_order_until_it_rolls_over() -> None:
    assert Slots(47, 48, 48).in_order and not Slots(48, 48, 48).in_order


def test_cut_drafts_leave_a_ring_usable() -> None:
    """Drafting writes up to 16 tokens and takes most of them back, over and over."""
    kv, history = MLXKV(spec(layer(window=20))), []
    rng = np.random.default_rng(0)
    fill(kv, 16, rng, history)
    for _ in range(30):
        slots = fill(kv, 16, rng, history)
        keys = np.array(kv.read(0, 0, slots.n_slots)[0]).transpose(1, 0, 2)
        for slot, position in enumerate(slots.positions()):
            if position > kv.length - 16 - 20:
                assert np.array_equal(keys[slot], history[position])
        keep = kv.length - 13
        assert kv.truncate(keep) == keep
        del history[keep:]


def test_truncation_says_what_it_could_keep() -> None:
    kv, history = MLXKV(spec(layer(window=20), layer())), []
    for _ in range(6):
        fill(kv, 16, np.random.default_rng(0), history)
    ring = kv.spec.layers[0].n_tokens
    assert kv.truncate(200) == 96 and kv.truncate(96) == 96
    reachable = 96 - ring + 19
    assert kv.truncate(reachable) == reachable
    assert kv.truncate(reachable - 1) == 0 and kv.length == 0


def test_recurrent_state_cannot_go_back() -> None:
    kv = MLXKV(spec(layer(state_bytes=64)))
    kv.set_state(0, "scan", mx.ones((4, 4)))
    kv.length = 10
    assert kv.truncate(10) == 10 and kv.truncate(9) == 0
    assert not np.array(kv.state(0, "scan", (4, 4))).any()


def test_pages_are_whole() -> None:
    assert MLXKV(spec(layer(window=3))).stored(0)[0].shape[1] % PAGE_TOKENS == 0


def test_a_rolled_ring_and_a_state_go_back_to_a_mark() -> None:
    """Marked at 50, rolled on to 110: back at 50 the window holds what it held, the state is that of 50."""
    window = layer(window=20, spare_pages=2 * checkpoint_pages(20))
    kv, history = MLXKV(spec(window, layer(state_bytes=64, spare_states=2))), []
    rng = np.random.default_rng(0)
    for n in (16, 16, 16, 2):
        fill(kv, n, rng, history)
    kv.set_state(1, "scan", mx.array([50.0]))
    kv.mark(range(50))
    for _ in range(4):
        fill(kv, 15, rng, history)
    kv.set_state(1, "scan", mx.array([110.0]))
    tokens = [*range(110)]
    assert kv.switch(tokens, [*range(70), 7, 7]) == 50  # the newest mark before they part
    assert kv.state(1, "scan", (1,)).item() == 50.0
    del history[50:]
    slots = fill(kv, 3, rng, history)
    keys = np.array(kv.read(0, 0, slots.n_slots)[0]).transpose(1, 0, 2)
    held = {p: keys[s] for s, p in enumerate(slots.positions().tolist())}
    assert all(np.array_equal(held[p], history[p]) for p in range(51 - 20, 53))
    assert kv.truncate(20) == 0  # before any mark


def test_marks_take_no_more_than_was_planned() -> None:
    window = layer(window=20, spare_pages=2 * checkpoint_pages(20))
    kv, history = MLXKV(spec(window)), []
    rng = np.random.default_rng(0)
    for _ in range(7):
        fill(kv, 16, rng, history)
        kv.mark(range(kv.length))
    assert [mark.length for mark in kv._marks] == [96, 112]
    kept = sum(a.nbytes for mark in kv._marks for rows in mark.rows.values() for a in rows)
    assert kept <= window.spare_bytes
    assert MLXKV(spec(layer(window=20))).mark(range(5)) is None
