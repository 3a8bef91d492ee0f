"""Several timelines in one MLX cache: what is found again is what was stored, and nothing more is allocated."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.mlx.kv import MLXKV, rotate
from localinfer.backends.mlx.timelines import Parked
from localinfer.engine.opening import open_engine
from localinfer.engine.params import EngineOptions, SamplingParams
from localinfer.kv.spec import KVLayer, KVSpec, checkpoint_pages, layer_pages, rotation
from tests.backends.mlx.conftest import GOLDEN

N_CTX, CHUNK = 160, 16


def a_layer(window: int = 0, state: bool = False) -> KVLayer:
    n_pages, marks = layer_pages(N_CTX, window, CHUNK), 3
    spare = marks * checkpoint_pages(window) if window else 0
    return KVLayer("window" if window else "full", 1, 1, 1, "f32", "f32", n_pages, window, 4 * state, False, spare,
                   marks * state)  # fmt: skip


SHAPES = {
    "full": [a_layer()],
    "window beside full": [a_layer(), a_layer(window=20)],
    "windows only": [a_layer(window=24)],
    "state beside full": [a_layer(), a_layer(state=True)],
    "everything": [a_layer(), a_layer(window=20), a_layer(state=True)],
}


class Checked:
    """A cache whose rows say what was before them: a digest of all tokens so far."""

    def __init__(self, layers: list[KVLayer]) -> None:
        self.kv = MLXKV(KVSpec(N_CTX, CHUNK, tuple(layers)))
        self.tokens: list[int] = []
        self.allocated = self.kv.n_bytes

    def extend(self, ids: list[int]) -> None:
        self.tokens += ids
        rows = np.array([digest(self.tokens[: p + 1]) for p in range(self.kv.length, len(self.tokens))], np.float32)
        for i, layer in enumerate(self.kv.spec.layers):
            self.kv.append(i, mx.array(rows.reshape(-1, 1, 1)), mx.array(-rows.reshape(-1, 1, 1)))
            if layer.state_bytes:
                self.kv.set_state(i, "scan", mx.array(rows[-1:]))
        self.kv.length = len(self.tokens)
        self.check()

    def switch(self, ids: list[int]) -> int:
        stored = self.kv.switch(self.tokens, ids)
        assert self.kv.length == stored <= len(ids)
        self.tokens = ids[:stored]
        self.check()
        return stored

    def check(self) -> None:
        n = len(self.tokens)
        assert self.kv.n_bytes == self.allocated
        for i, layer in enumerate(self.kv.spec.layers):
            first = max(0, n - layer.window + 1) if layer.n_tokens < N_CTX else 0
            keys, values = (np.array(a).reshape(-1) for a in self.kv.stored(i))
            for p in range(first, n):
                expected = np.float32(digest(self.tokens[: p + 1]))
                assert keys[p % layer.n_tokens] == expected == -values[p % layer.n_tokens], (i, p)
            if layer.state_bytes and n:
                assert self.kv.state(i, "scan", (1,)).item() == np.float32(digest(self.tokens))


def digest(tokens: list[int]) -> int:
    return zlib.crc32(bytes(tokens)) >> 8  # a float32 holds it exactly


@pytest.mark.parametrize("shape", SHAPES)
def test_random_lives(shape: str) -> None:
    found = 0
    for seed in range(25):
        rng = random.Random(f"{shape} {seed}")
        cache, past = Checked(SHAPES[shape]), [[]]
        for _ in range(rng.randint(5, 25)):
            room = N_CTX - len(cache.tokens)
            if rng.random() < 0.6 and room:
                cache.extend([rng.randrange(3) for _ in range(rng.randint(1, min(room, CHUNK)))])
            elif rng.random() < 0.2:
                keep = rng.randint(0, len(cache.tokens))
                cache.tokens = cache.tokens[: cache.kv.truncate(keep)]
                cache.check()
            elif rng.random() < 0.1:
                cache.kv.mark(cache.tokens)
            else:
                past.append(list(cache.tokens))
                old = rng.choice(past)
                cut = len(old) if rng.random() < 0.5 else rng.randint(0, len(old))
                found += cache.switch((old[:cut] + [3] * rng.randint(0, 9))[:N_CTX])
        cache.kv.clear()
        assert cache.kv.length == 0 and not cache.kv._parked.segments and not cache.kv._marks
    assert found > 100


def test_branches_of_a_common_beginning_come_back_whole() -> None:
    cache, prefix = Checked(SHAPES["full"]), [7] * 40
    branches = [prefix + [i] * 20 for i in range(4)]
    for ids in branches:
        cache.switch(ids)
        for at in range(len(cache.tokens), len(ids), CHUNK):
            cache.extend(ids[at : at + CHUNK])
    assert [cache.switch(ids) for ids in branches] == [60, 60, 60, 60]  # 60 and 4 x 20 rows fit into 160


def test_the_running_timeline_takes_its_slots_back() -> None:
    parked = Parked(100, lambda copies: None)
    parked.park(list(range(40)), 0, 50, ())
    assert [(s.at, s.end) for s in parked.segments] == [(60, 100)]
    parked.park(list(range(100, 130)), 0, 50, ())  # no room for both: the one used longest ago goes
    assert [(s.tokens[0], s.at, s.end) for s in parked.segments] == [(100, 70, 100)]
    parked.give_way(70)
    assert parked.segments
    parked.give_way(71)
    assert not parked.segments


@pytest.mark.parametrize("name", ["llama", "gemma3", "falcon-h1"])
def test_a_chat_that_goes_back_computes_only_what_is_new(name: str) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, draft="off")
    with open_engine(GOLDEN / f"{name}.gguf", EngineOptions(ctx=256, backend="mlx", chunk=32)) as engine:
        system, ends, resumed = list(range(3, 43)), [], []
        for branch in range(3):
            *_, done = engine.generate([*system, *range(50 + 30 * branch, 80 + 30 * branch)], greedy, turn_id=branch)
            ends.append([*system, *range(50 + 30 * branch, 80 + 30 * branch), *done.tokens])
        if engine.conversation.kv._forgets:
            ends = ends[1:2]  # four marks are planned for, two a turn
        for ids in ends:
            *_, again = engine.generate([*ids, 5, 6], greedy)
            assert again.stats.cached_tokens >= len(ids) - 1
            resumed.append(again.tokens)
        for ids, tokens in zip(ends, resumed, strict=True):
            engine.conversation.clear()
            *_, fresh = engine.generate([*ids, 5, 6], greedy)
            assert fresh.stats.cached_tokens == 0 and fresh.tokens == tokens


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_saved_cache_goes_on_where_it_was(name: str, tmp_path: Path, monkeypatch) -> None:
    """Through the engine: written, read by another engine, refused by another KV type."""
    monkeypatch.setenv("LOCALINFER_HOME", str(tmp_path))
    monkeypatch.setattr("localinfer.engine.snapshots.WORTHWHILE_S", 0.0)
    options = EngineOptions(ctx=256, backend="mlx", chunk=32, snapshot_bytes=10**9)
    greedy, ids = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, draft="off"), list(range(3, 120))
    with open_engine(GOLDEN / f"{name}.gguf", options) as engine:
        *_, first = engine.generate(ids, greedy)
        engine._unsaved = "chat"
        assert engine.save()
        longer = [*ids, *first.tokens, 9]
        *_, expected = engine.generate(longer, greedy)
    with open_engine(GOLDEN / f"{name}.gguf", options) as engine:
        assert list(engine._reopen("chat", longer, 0)) == []
        *_, again = engine.generate(longer, greedy)
        assert again.stats.cached_tokens == len(ids) + 3 and again.tokens == expected.tokens
    with open_engine(GOLDEN / f"{name}.gguf", EngineOptions(**{**options.__dict__, "kv": "q8_0"})) as engine:
        (told,) = engine._reopen("chat", longer, 0)
        assert "saved with another KV types" in told.text and engine.conversation.length == 0


def test_rotation_is_its_own_inverse_and_spreads_an_outlier() -> None:
    x = mx.zeros((2, 3, 96)) + mx.array([8.0] + [0.0] * 95)
    turned = rotate(x, rotation("q4_0", 96))
    assert rotation("q4_0", 96) == 32 and rotation("f16", 96) == 0
    assert mx.abs(turned).max().item() == pytest.approx(8 / 32**0.5) and mx.allclose(rotate(turned, 32), x, atol=1e-5)
