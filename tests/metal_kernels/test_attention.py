"""attend + merge_attention, executed on the host, against float64 attention over the decoded cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from localinfer.backends.mlx.gpu_attention import attend_shape
from localinfer.backends.mlx.kernels import attention_kernel, plain_kernel
from localinfer.backends.mlx.kv import Slots
from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import quantize
from tests.metal_kernels.host import Counts, run_kernel


@dataclass
class Setting:
    k: str = "Q8_0"
    v: str = "Q4_0"
    n: int = 1  # tokens
    start: int = 99
    heads: int = 4
    groups: int = 2
    d_k: int = 64
    d_v: int = 64
    window: int = 0
    chunk: int = 0
    ring: int = 512
    softcap: float = 0.0
    alibi: bool = False
    sinks: bool = False
    v_in_k: bool = False
    split: int = 64

    @property
    def slots(self) -> Slots:
        end = self.start + self.n
        return Slots(end - 1, min(end, self.ring), self.ring)


class Scene:
    """Random queries and a cache whose unused slots hold NaN or the largest scales, so that a stray read shows."""

    def __init__(self, s: Setting) -> None:
        rng = np.random.default_rng(7)
        self.s = s
        self.q = rng.standard_normal((s.n, s.heads, s.d_k)).astype(np.float32)
        self.keys, self.k = self._cache(rng, s.k, s.d_k)
        self.values, self.v = (self.keys, self.k[..., : s.d_v]) if s.v_in_k else self._cache(rng, s.v, s.d_v)
        self.slopes = np.linspace(0.05, 0.3, s.heads).astype(np.float32)
        self.sinks = rng.standard_normal(s.heads).astype(np.float32)

    def _cache(self, rng: np.random.Generator, name: str, d: int) -> tuple[np.ndarray, np.ndarray]:
        """(G, ring, row) as stored, and decoded (G, n_slots, d)."""
        kind, n = GGMLType[name], self.s.slots.n_slots
        raw = quantize(rng.standard_normal((self.s.groups, self.s.ring, d)), kind)
        raw[:, n:] = 0x7F
        decoded = dequantize(np.ascontiguousarray(raw[:, :n]), kind, (self.s.groups, n, d))
        width = {"F32": np.float32, "F16": np.float16}.get(name, np.uint16)
        return raw.view(width), decoded

    def exact(self) -> np.ndarray:
        s = self.s
        rank = s.heads // s.groups
        k, v = (np.repeat(x.astype(np.float64), rank, axis=0) for x in (self.k, self.v))
        scores = np.einsum("thd,hsd->ths", self.q.astype(np.float64), k) * 0.3
        t, p = np.arange(s.start, s.start + s.n)[:, None], s.slots.positions()[None, :]
        if s.softcap:
            scores = s.softcap * np.tanh(scores / s.softcap)
        if s.alibi:
            scores = scores + self.slopes[None, :, None] * (p - t)[:, None, :]
        seen = (p <= t) & ((t - p < s.window) | (not s.window)) & ((t // s.chunk == p // s.chunk) if s.chunk else True)
        scores = np.where(seen[:, None, :], scores, -np.inf)
        sink = self.sinks[None, :, None] if s.sinks else np.full((1, s.heads, 1), -np.inf)
        top = np.maximum(scores.max(axis=-1, keepdims=True), sink)
        e = np.exp(scores - top)
        return np.einsum("ths,hsd->thd", e / (e.sum(axis=-1, keepdims=True) + np.exp(sink - top)), v).reshape(s.n, -1)

    def run(self) -> tuple[np.ndarray, dict[str, Counts]]:
        s, slots = self.s, self.s.slots
        vec, rows = attend_shape(s.d_v, s.n * s.heads // s.groups)
        n_splits = -(-slots.n_slots // s.split)
        sizes = [s.n, s.heads, s.groups, s.start, slots.n_slots, s.ring, s.window, s.chunk, s.ring]
        first = run_kernel(
            attention_kernel(GGMLType[s.k], GGMLType[s.k if s.v_in_k else s.v]),
            [self.q, self.keys, self.values, self.slopes, np.array(sizes, np.int32),
             np.array([0.3, s.softcap], np.float32)],
            [("ROWS", rows), ("DK", s.d_k), ("DV", s.d_v), ("VEC", vec), ("SPLIT", s.split), ("V_IN_K", int(s.v_in_k)),
             ("SOFTCAP", int(s.softcap > 0)), ("ALIBI", int(s.alibi))],
            (32 * n_splits, -(-s.n * s.heads // s.groups // rows), s.groups), (32, 1, 1),
            [(s.n * s.heads, n_splits, s.d_v), (s.n * s.heads, n_splits, 2)], ["float32", "float32"],
            ["keys", "values"],
        )  # fmt: skip
        merged = run_kernel(
            plain_kernel("merge_attention"), [*first.outputs, self.sinks, np.array([n_splits, s.heads], np.int32)],
            [("DV", s.d_v), ("SINKS", int(s.sinks))], (32, s.n * s.heads, 1), (32, 1, 1),
            [(s.n, s.heads * s.d_v)], ["float32"],
        )  # fmt: skip
        return merged.outputs[0], first.counts


SETTINGS = {
    "one query over q8_0 and q4_0": Setting(),
    "first token": Setting(start=0),
    "float16": Setting(k="F16", v="F16"),
    "float32, 16 queries": Setting(k="F32", v="F32", n=16, start=50),
    "head size 256, softcap, window": Setting(k="Q8_0", v="Q8_0", d_k=256, d_v=256, n=3, window=37, softcap=20.0),
    "a ring that rolled over": Setting(k="Q8_0", v="Q8_0", ring=48, window=33, start=130, n=5),
    "chunks and sinks": Setting(k="Q8_0", v="Q8_0", chunk=32, sinks=True, n=4),
    "alibi, one head a group": Setting(k="F16", v="F16", heads=3, groups=3, alibi=True, n=2),
    "values in keys, wide": Setting(k="Q8_0", v="Q8_0", heads=6, groups=1, d_k=160, d_v=128, v_in_k=True, n=2),
    "odd head size": Setting(k="F16", v="F16", d_k=20, d_v=12, n=2),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_attention_is_exact_to_float32(name: str) -> None:
    scene = Scene(SETTINGS[name])
    found, _ = scene.run()
    assert np.isfinite(found).all()
    assert np.abs(found - scene.exact()).max() < 3e-6 * max(1.0, np.abs(scene.exact()).max())


@pytest.mark.parametrize("start", [0, 30, 31, 32, 62, 63, 64, 254, 255, 256])
def test_context_lengths_around_steps_and_stretches(start: int) -> None:
    scene = Scene(Setting(start=start))
    assert np.abs(scene.run()[0] - scene.exact()).max() < 3e-6


def test_each_stored_byte_is_fetched_by_one_group_of_lanes() -> None:
    """Two query heads share a key/value head: one fetch serves both, and nothing beyond the context is touched."""
    scene = Scene(Setting(start=255))
    _, counts = scene.run()
    for name, store in (("keys", scene.keys), ("values", scene.values)):
        owner = counts[name].owner.reshape(store.shape[0], store.shape[1], -1)
        assert (owner[:, :256] > 0).all() and not owner[:, 256:].any()
        assert not counts[name].shared.any()
