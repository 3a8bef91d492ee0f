"""Each operation alone against the numpy reference, through a recorded program of one or a few operations."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from localinfer.backends.cpu.kv import CpuKV
from localinfer.backends.cpu.tape import Tape
from localinfer.backends.cpu.weights import CpuWeight
from localinfer.backends.reference.kv import ReferenceKV
from localinfer.backends.reference.ops import ReferenceOps, ReferenceWeight
from localinfer.formats.ggml_types import GGMLType
from localinfer.kv.spec import KVLayer, KVSpec
from localinfer.models.config import AttentionConfig, MoEConfig, RopeConfig, StateConfig
from localinfer.models.ops import MoEWeights, ScanWeights
from localinfer.models.program import Program, Recorder

N_VOCAB = 50


class Weights:
    """Random F32 tensors, the same for both sides."""

    def __init__(self, side: type, seed: int = 1) -> None:
        self._side = side
        self._rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, scale: float = 0.5, positive: bool = False) -> Any:
        values = (self._rng.standard_normal(shape) * scale).astype(np.float32)
        raw = memoryview(np.abs(values) if positive else values).cast("B")
        if self._side is CpuWeight:
            return CpuWeight("w", raw, GGMLType.F32, shape)
        return ReferenceWeight(raw, GGMLType.F32, shape)


Body = Callable[[Any, Any, Weights, Any, Any], Any]  # (ops, x, weights, start, kv) -> result


class OneOperation:
    """A decoder of an embedding and a body."""

    def __init__(self, body: Body, width: int, side: type) -> None:
        self._body, self._width, self._side = body, width, side

    def forward(self, ops: Any, ids: Any, start: Any, kv: Any, rows: int) -> Any:
        weights = Weights(self._side)
        y = self._body(ops, ops.embed(weights(N_VOCAB, self._width, scale=1.0), ids), weights, start, kv)
        y = y.reshape(y.shape[0], -1)
        return ops.linear(y[y.shape[0] - rows :], _identity(y.shape[1], self._side))

    def record(self, n_tokens: int, n_rows: int) -> Program:
        recorder = Recorder(n_tokens, n_rows)
        recorder.program.result = self.forward(recorder, None, None, None, n_rows)
        return recorder.program


def _identity(n: int, side: type) -> Any:
    raw = memoryview(np.eye(n, dtype=np.float32)).cast("B")
    return CpuWeight("identity", raw, GGMLType.F32, (n, n)) if side is CpuWeight else ReferenceWeight(
        raw, GGMLType.F32, (n, n)
    )  # fmt: skip


def run_cpu(backend, body: Body, width: int, spec: KVSpec, ids: list[int], step: int, fused: bool) -> np.ndarray:
    tape = Tape(backend.lib, OneOperation(body, width, CpuWeight), 40, backend.threads, fused)  # type: ignore[arg-type]
    kv = CpuKV(backend.lib, spec)
    sizes = [
        backend.lib.li_attention_scratch_bytes(a, kv.layers[i], 40, spec.n_ctx, backend.threads)
        for i, a in tape.attention
    ]
    scratch = mmap.mmap(-1, max(sizes, default=1))
    address = ctypes.addressof(ctypes.c_char.from_buffer(scratch))
    rows = []
    for i in range(0, len(ids), step):
        part = np.array(ids[i : i + step], np.int32)
        rows.append(tape.run(backend.pool, part, len(part), kv, address))
        kv.extend(len(part))
    return np.concatenate(rows)


def compare(backend, body: Body, width: int, layer: KVLayer | None = None, tolerance: float = 2e-6) -> None:
    """37 tokens: close to the reference, and the same bits fused or not, whole or in steps of 1 and 5."""
    spec = KVSpec(64, 40, (layer or KVLayer("none", 0, 0, 0, "f32", "f32", 0),))
    ids = np.random.default_rng(7).integers(0, N_VOCAB, 37).tolist()
    reference = OneOperation(body, width, ReferenceWeight).forward(ReferenceOps(), ids, 0, ReferenceKV(spec), len(ids))
    found = run_cpu(backend, body, width, spec, ids, 37, True)
    assert np.abs(found - reference).max() <= tolerance * max(1.0, np.abs(reference).max())
    for step, fused in ((1, True), (5, True), (37, False)):
        assert np.array_equal(run_cpu(backend, body, width, spec, ids, step, fused), found), (step, fused)


@pytest.mark.parametrize("width", [1, 3, 8, 31, 33, 100, 257])
def test_norms(backend, width: int) -> None:
    compare(backend, lambda ops, x, w, start, kv: ops.rms_norm(x, w(width), 1e-5), width)
    compare(backend, lambda ops, x, w, start, kv: ops.rms_norm(x, None, 1e-5), width)
    if width > 1:  # the variance of one value is 0: then only eps decides
        compare(backend, lambda ops, x, w, start, kv: ops.layer_norm(x, w(width), w(width), 1e-5), width)
        compare(backend, lambda ops, x, w, start, kv: ops.layer_norm(x, w(width), None, 1e-5), width)


def test_norms_of_heads_shared_and_own_weights(backend) -> None:
    compare(backend, lambda ops, x, w, start, kv: ops.rms_norm(x.reshape(-1, 4, 24), w(24), 1e-6), 96)
    compare(backend, lambda ops, x, w, start, kv: ops.rms_norm(x.reshape(-1, 4, 24), w(4, 24), 1e-6), 96)


@pytest.mark.parametrize("act", ["silu", "gelu", "relu", "relu2", "sigmoid"])
def test_activations(backend, act: str) -> None:
    compare(backend, lambda ops, x, w, start, kv: ops.activate(x * 4.0, act), 67)
    compare(backend, lambda ops, x, w, start, kv: ops.glu(x * 4.0, ops.linear(x, w(67, 67)), act), 67)


@pytest.mark.parametrize("act", ["silu", "swiglu_oai"])
def test_gated_feed_forward(backend, act: str) -> None:
    compare(backend, lambda ops, x, w, start, kv: _gated(ops, x, w, act), 48)


def test_gate_and_up_in_one_matrix(backend) -> None:
    def halves(ops, x, w, start, kv):
        both = ops.linear(x, w(80, 48), w(80))
        return ops.linear(ops.glu(both[:, :40], both[:, 40:], "gelu"), w(48, 40)) + x

    compare(backend, halves, 48)


def _gated(ops: Any, x: Any, w: Weights, act: Any) -> Any:
    h = ops.rms_norm(x, w(48), 1e-5)
    up, gate = ops.linear(h, w(96, 48), w(96)), ops.linear(h, w(96, 48, scale=2.0), w(96))
    return x + ops.linear(ops.glu(gate, up, act), w(48, 96), w(48)) * 0.3


def test_sums_products_and_caps(backend) -> None:
    compare(backend, lambda ops, x, w, start, kv: x + ops.linear(x, w(33, 33)), 33)
    compare(backend, lambda ops, x, w, start, kv: x * ops.linear(x, w(33, 33)), 33)
    compare(backend, lambda ops, x, w, start, kv: x * ops.activate(ops.linear(x, w(33)), "sigmoid"), 33)
    compare(backend, lambda ops, x, w, start, kv: ops.softcap(ops.linear(x, w(9, 33)) * 30.0, 20.0), 33)
    compare(backend, lambda ops, x, w, start, kv: ops.softcap(x * 0.01, 50.0), 33)


def test_parallel_residual_with_one_norm(backend) -> None:
    def body(ops, x, w, start, kv):
        h = ops.layer_norm(x, w(32), w(32), 1e-5)
        first = ops.linear(h, w(32, 32), w(32))
        return x + first + ops.linear(ops.activate(ops.linear(h, w(64, 32)), "gelu"), w(32, 64))

    compare(backend, body, 32)


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("n_dims", [2, 6, 16])
def test_rope(backend, style: str, n_dims: int) -> None:
    rope = RopeConfig(n_dims, style, tuple(10000.0 ** (-2 * i / n_dims) for i in range(n_dims // 2)), 1.25)
    compare(backend, lambda ops, x, w, start, kv: ops.rope(x.reshape(-1, 3, 16), start, rope), 48)


def test_position_scale_and_learned_positions(backend) -> None:
    compare(backend, lambda ops, x, w, start, kv: ops.position_scale(x, start, 4, 0.1), 20)
    compare(backend, lambda ops, x, w, start, kv: x + ops.embed_positions(w(64, 20), start, x.shape[0]), 20)


def test_head_operations(backend) -> None:
    def body(ops, x, w, start, kv):
        heads = x.reshape(-1, 4, 12)
        a, b = ops.head_slice(heads, 0, 5), ops.head_slice(heads, 5, 12)
        one = ops.linear(x, w(3, 48)).reshape(-1, 1, 3)
        mixed = ops.head_linear(ops.head_concat(b, one), w(4, 70, 10))
        return ops.head_concat(mixed, a)

    compare(backend, body, 48)


ATTENTION = AttentionConfig(n_heads=6, n_kv_heads=2, d_k=16, d_v=8, scale=0.25)
FULL = KVLayer("full", 2, 16, 8, "f32", "f32", 4)


def _attend(ops: Any, x: Any, w: Weights, start: Any, kv: Any, attn: AttentionConfig, norms: bool = False) -> Any:
    rope = RopeConfig(16, "half", tuple(0.5**i for i in range(8)))
    q = ops.linear(x, w(96, 48)).reshape(-1, 6, 16)
    k = ops.linear(x, w(32, 48)).reshape(-1, 2, 16)
    v = ops.linear(x, w(16, 48)).reshape(-1, 2, 8)
    if norms:
        q, k = ops.rms_norm(q, w(16), 1e-6), ops.rms_norm(k, w(16), 1e-6)
    sinks = w(6) if norms else None
    return ops.attention(ops.rope(q, start, rope), ops.rope(k, start, rope), v, kv, 0, attn, sinks)


def test_attention_with_rope_norms_sinks_softcap_and_alibi(backend) -> None:
    compare(backend, lambda ops, x, w, start, kv: _attend(ops, x, w, start, kv, ATTENTION), 48, FULL, 1e-5)
    compare(backend, lambda ops, x, w, start, kv: _attend(ops, x, w, start, kv, ATTENTION, True), 48, FULL, 1e-5)
    capped = AttentionConfig(6, 2, 16, 8, 0.25, softcap=5.0, alibi_max_bias=8.0)
    compare(backend, lambda ops, x, w, start, kv: _attend(ops, x, w, start, kv, capped), 48, FULL, 1e-5)


def test_attention_in_windows_and_chunks(backend) -> None:
    window = AttentionConfig(6, 2, 16, 8, 0.25, window=9)
    ring = KVLayer("window", 2, 16, 8, "f32", "f32", 4, 9)
    compare(backend, lambda ops, x, w, start, kv: _attend(ops, x, w, start, kv, window), 48, ring, 1e-5)
    chunk = AttentionConfig(6, 2, 16, 8, 0.25, chunk=10)
    compare(backend, lambda ops, x, w, start, kv: _attend(ops, x, w, start, kv, chunk), 48, FULL, 1e-5)


def test_attention_over_one_fused_projection(backend) -> None:
    def body(ops, x, w, start, kv):
        rope = RopeConfig(16, "interleaved", tuple(0.5**i for i in range(8)))
        y = ops.linear(x, w(144, 48), w(144))
        q, k, v = y[:, :96].reshape(-1, 6, 16), y[:, 96:128].reshape(-1, 2, 16), y[:, 128:].reshape(-1, 2, 8)
        return ops.attention(ops.rope(q, start, rope), ops.rope(k, start, rope), v, kv, 0, ATTENTION)

    compare(backend, body, 48, FULL, 1e-5)


def test_keys_that_someone_else_reads_are_not_rotated_in_place(backend) -> None:
    def body(ops, x, w, start, kv):
        rope = RopeConfig(16, "half", tuple(0.5**i for i in range(8)))
        q, k = ops.linear(x, w(96, 48)), ops.linear(x, w(32, 48))
        v = ops.linear(x, w(16, 48)).reshape(-1, 2, 8)
        rotated = ops.rope(q.reshape(-1, 6, 16), start, rope), ops.rope(k.reshape(-1, 2, 16), start, rope)
        return ops.attention(*rotated, v, kv, 0, ATTENTION) + ops.linear(q, w(48, 96)) + ops.linear(k, w(48, 32))

    compare(backend, body, 48, FULL, 1e-5)


STATE = StateConfig(conv_kernel=4, conv_channels=70)


def state_layer(s: StateConfig) -> KVLayer:
    return KVLayer("state", 0, 0, 0, "f32", "f32", 0, 0, 4 * (s.conv_values + s.scan_values))


def test_taps_over_time(backend) -> None:
    layer = state_layer(STATE)
    compare(backend, lambda ops, x, w, start, kv: ops.causal_conv(x, w(70, 4), w(70), kv, 0, STATE), 70, layer)
    compare(backend, lambda ops, x, w, start, kv: ops.causal_conv(x, w(70, 4), None, kv, 0, STATE), 70, layer)


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("a_values", [1, 12])
def test_selective_scan(backend, tiled: bool, a_values: int) -> None:
    s = StateConfig(1, 0, n_heads=6, d_head=5, d_state=12, n_groups=2, tiled_groups=tiled)

    def body(ops, x, w, start, kv):
        values = ops.linear(x, w(30, 40)).reshape(-1, 6, 5)
        dt, b, c = ops.linear(x, w(6, 40)), ops.linear(x, w(24, 40)), ops.linear(x, w(24, 40))
        scan = ScanWeights(_negative(w, 6, a_values), w(6), w(6))
        return ops.scan(values, dt, b.reshape(-1, 2, 12), c.reshape(-1, 2, 12), scan, kv, 0, s)

    compare(backend, body, 40, state_layer(s), 2e-5)


def test_gated_delta_rule(backend) -> None:
    s = StateConfig(1, 0, n_heads=4, d_head=6, d_state=16, n_groups=2)

    def body(ops, x, w, start, kv):
        q, k = (ops.linear(x, w(32, 40)).reshape(-1, 2, 16) for _ in range(2))
        v = ops.linear(x, w(24, 40)).reshape(-1, 4, 6)
        alpha, beta = ops.linear(x, w(4, 40)), ops.linear(x, w(4, 40))
        return ops.delta_rule(q, k, v, alpha, beta, ScanWeights(_negative(w, 4), w(4)), kv, 0, s, 1e-6)

    compare(backend, body, 40, state_layer(s), 2e-5)


def _negative(w: Weights, *shape: int) -> Any:
    made = w(*shape, positive=True)
    values = -np.frombuffer(made.raw, np.float32).reshape(shape)
    side = type(made)
    negated = memoryview(np.ascontiguousarray(values)).cast("B")
    return side("a", negated, GGMLType.F32, shape) if side is CpuWeight else side(negated, GGMLType.F32, shape)


MOE = MoEConfig(n_experts=12, n_used=3, n_ff=20)
MOE_FORMS = {
    "softmax": MOE,
    "not normalized, scaled": MoEConfig(12, 3, 20, normalize=False, scale=2.5),
    "sigmoid in groups": MoEConfig(12, 3, 20, gating="sigmoid", n_groups=4, n_groups_used=2),
    "softmax after top-k": MoEConfig(12, 3, 20, gating="softmax_after_topk", normalize=False),
    "weighted input": MoEConfig(12, 1, 20, gating="sigmoid", normalize=False, weigh_input=True),
    "all experts": MoEConfig(12, 12, 20),
}


@pytest.mark.parametrize("form", MOE_FORMS)
@pytest.mark.parametrize("gated", [True, False])
def test_experts(backend, form: str, gated: bool) -> None:
    def body(ops, x, w, start, kv):
        weights = MoEWeights(
            router=w(12, 32), up=w(12, 20, 32), down=w(12, 32, 20), gate=w(12, 20, 32) if gated else None,
            router_bias=w(12), choice_bias=w(12, scale=0.1), gate_bias=w(12, 20) if gated else None,
            up_bias=w(12, 20), down_bias=w(12, 32),
        )  # fmt: skip
        return ops.moe(x, weights, MOE_FORMS[form], "silu" if gated else "relu2")

    compare(backend, body, 32, tolerance=1e-5)
