"""Every operation of models/ops.py in plain numpy: what the kernels are checked against.

Float32 arrays, weights decoded when used. Slow and simple on purpose. It also runs where the C kernels could not be
built, and then says so (backends/cpu).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from localinfer.backends.reference.kv import ReferenceKV
from localinfer.formats.dequant import dequantize, dequantize_rows
from localinfer.formats.ggml_types import GGMLType
from localinfer.models.config import Activation, AttentionConfig, MoEConfig, RopeConfig, StateConfig
from localinfer.models.ops import MoEWeights, ScanWeights
from localinfer.records import dataclass

F32 = np.float32
SMALLEST_SUM = F32(2**-14)  # the smallest normal float16, llama.cpp's guard against dividing by zero


@dataclass(frozen=True)
class ReferenceWeight:
    """A tensor's raw blocks; `shape` is (..., out, in)."""

    raw: memoryview
    type: GGMLType
    shape: tuple[int, ...]

    def rows(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        return dequantize_rows(self.raw, self.type, self.shape[-1], np.asarray(ids, np.int64))

    def decoded(self) -> np.ndarray:
        return dequantize(self.raw, self.type, self.shape)

    @cached_property
    def vector(self) -> np.ndarray:
        """Norms, biases and other small tensors, kept decoded."""
        return self.decoded()


class ReferenceOps:
    def embed(self, w: ReferenceWeight, ids: Sequence[int]) -> np.ndarray:
        return w.rows(ids)

    def embed_positions(self, w: ReferenceWeight, start: int, n_tokens: int) -> np.ndarray:
        return w.rows(np.arange(start, start + n_tokens))

    def linear(self, x: np.ndarray, w: ReferenceWeight, bias: ReferenceWeight | None = None) -> np.ndarray:
        y = x @ np.atleast_2d(w.decoded()).T
        return y if bias is None else y + bias.vector

    def rms_norm(self, x: np.ndarray, w: ReferenceWeight | None, eps: float) -> np.ndarray:
        y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + F32(eps))
        return y if w is None else y * w.vector

    def layer_norm(
        self, x: np.ndarray, w: ReferenceWeight | None, bias: ReferenceWeight | None, eps: float
    ) -> np.ndarray:
        centered = x - x.mean(axis=-1, keepdims=True)
        y = self.rms_norm(centered, w, eps)
        return y if bias is None else y + bias.vector

    def rope(self, x: np.ndarray, start: int, rope: RopeConfig) -> np.ndarray:
        position = np.arange(start, start + x.shape[0], dtype=np.float64)
        angle = position[:, None, None] * np.asarray(rope.inv_freq)  # (T, 1, n_dims/2), float64: positions grow large
        cos, sin = (np.cos(angle) * rope.magnitude).astype(F32), (np.sin(angle) * rope.magnitude).astype(F32)
        y = x.copy()
        a, b = rope.pairs
        y[..., a] = x[..., a] * cos - x[..., b] * sin
        y[..., b] = x[..., a] * sin + x[..., b] * cos
        return y

    def position_scale(self, x: np.ndarray, start: int, every: int, scale: float) -> np.ndarray:
        factor = position_factors(start, x.shape[0], every, scale)
        return x * factor.reshape(-1, *[1] * (x.ndim - 1))

    def attention(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray | None,
        kv: ReferenceKV,
        layer: int,
        attn: AttentionConfig,
        sinks: ReferenceWeight | None = None,
    ) -> np.ndarray:
        start, n = kv.length, q.shape[0]
        keys, values = kv.append(layer, k, v)  # (S, G, D)
        group = attn.n_heads // attn.n_kv_heads
        query = q.reshape(n, attn.n_kv_heads, group, attn.d_k)
        scores = np.einsum("tgrd,sgd->grts", query, keys, optimize=True) * F32(attn.scale)
        if attn.softcap:
            scores = self.softcap(scores, attn.softcap)
        t, s = np.arange(start, start + n)[:, None], np.arange(start + n)[None, :]
        if attn.alibi_max_bias:
            slopes = alibi_slopes(attn.n_heads, attn.alibi_max_bias).reshape(attn.n_kv_heads, group, 1, 1)
            scores = scores + slopes * (s - t).astype(F32)
        scores = np.where(_visible(t, s, attn), scores, F32(-np.inf))
        weights = _softmax(scores, None if sinks is None else sinks.vector.reshape(attn.n_kv_heads, group, 1, 1))
        out = np.einsum("grts,sgd->tgrd", weights, values, optimize=True)
        return np.ascontiguousarray(out.reshape(n, attn.n_heads * attn.d_v), F32)

    def glu(self, gate: np.ndarray, up: np.ndarray, act: Activation) -> np.ndarray:
        if act == "swiglu_oai":  # gpt-oss: clamped, up shifted by one
            gate, up = np.minimum(gate, F32(7)), np.clip(up, F32(-7), F32(7))
            return gate * _sigmoid(F32(1.702) * gate) * (up + F32(1))
        return self.activate(gate, act) * up

    def activate(self, x: np.ndarray, act: Activation) -> np.ndarray:
        return _ACTIVATIONS[act](x).astype(F32, copy=False)

    def softcap(self, x: np.ndarray, cap: float) -> np.ndarray:
        return F32(cap) * np.tanh(x / F32(cap))

    def head_slice(self, x: np.ndarray, first: int, end: int) -> np.ndarray:
        return np.ascontiguousarray(x[..., first:end])

    def head_concat(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.concatenate([a, np.broadcast_to(b, (*a.shape[:2], b.shape[2]))], axis=-1)

    def head_linear(self, x: np.ndarray, w: ReferenceWeight) -> np.ndarray:
        return np.einsum("thi,hoi->tho", x, w.decoded(), optimize=True)

    def causal_conv(
        self,
        x: np.ndarray,
        w: ReferenceWeight,
        bias: ReferenceWeight | None,
        kv: ReferenceKV,
        layer: int,
        state: StateConfig,
    ) -> np.ndarray:
        taps, n = w.vector, x.shape[0]  # (C, K)
        past = kv.state(layer, "conv", (state.conv_kernel - 1, state.conv_channels))
        rows = np.concatenate([past, x])
        past[:] = rows[n:]
        y = sum(rows[k : k + n] * taps[:, k] for k in range(state.conv_kernel))
        return y if bias is None else y + bias.vector

    def scan(
        self,
        x: np.ndarray,
        dt: np.ndarray,
        b: np.ndarray,
        c: np.ndarray,
        w: ScanWeights,
        kv: ReferenceKV,
        layer: int,
        s: StateConfig,
    ) -> np.ndarray:
        memory = kv.state(layer, "scan", (s.n_heads, s.d_head, s.d_state))
        step = _softplus(dt + w.dt_bias.vector.reshape(-1))  # (T, H)
        decay = np.exp(step[:, :, None] * w.a.vector.reshape(s.n_heads, -1))  # (T, H, 1 or N)
        group = state_groups(s)
        y = np.empty_like(x)
        for t in range(x.shape[0]):
            memory *= decay[t][:, None, :]
            memory += (step[t][:, None] * x[t])[:, :, None] * b[t][group][:, None, :]
            y[t] = np.einsum("hpn,hn->hp", memory, c[t][group])
        return y if w.d is None else y + x * w.d.vector.reshape(-1, 1)

    def delta_rule(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        alpha: np.ndarray,
        beta: np.ndarray,
        w: ScanWeights,
        kv: ReferenceKV,
        layer: int,
        s: StateConfig,
        eps: float,
    ) -> np.ndarray:
        memory = kv.state(layer, "scan", (s.n_heads, s.d_head, s.d_state))
        group = state_groups(s)
        q, k = _unit(q, eps)[:, group] * F32(s.d_state**-0.5), _unit(k, eps)[:, group]  # (T, H, N)
        decay = np.exp(_softplus(alpha + w.dt_bias.vector.reshape(-1)) * w.a.vector.reshape(-1))
        rate = _sigmoid(beta)
        y = np.empty_like(v)
        for t in range(v.shape[0]):
            memory *= decay[t][:, None, None]
            error = v[t] - np.einsum("hpn,hn->hp", memory, k[t])
            memory += (rate[t][:, None] * error)[:, :, None] * k[t][:, None, :]
            y[t] = np.einsum("hpn,hn->hp", memory, q[t])
        return y

    def moe(self, x: np.ndarray, w: MoEWeights, moe: MoEConfig, act: Activation) -> np.ndarray:
        logits = self.linear(x, w.router, w.router_bias)
        chosen, weights = route(logits, moe, None if w.choice_bias is None else w.choice_bias.vector)
        out = np.zeros_like(x)
        for e in np.unique(chosen):
            rows, slots = np.nonzero(chosen == e)
            share = weights[rows, slots][:, None]
            if moe.weigh_input:
                out[rows] += self._expert(x[rows] * share, w, e, act)
            else:
                out[rows] += self._expert(x[rows], w, e, act) * share
        return out

    def _expert(self, x: np.ndarray, w: MoEWeights, e: int, act: Activation) -> np.ndarray:
        up = _expert_linear(x, w.up, w.up_bias, e)
        if w.gate is None:
            inner = self.activate(up, act)
        else:
            inner = self.glu(_expert_linear(x, w.gate, w.gate_bias, e), up, act)
        return _expert_linear(inner, w.down, w.down_bias, e)


def _expert_linear(x: np.ndarray, w: ReferenceWeight, bias: ReferenceWeight | None, e: int) -> np.ndarray:
    """x @ W[e].T + bias[e], decoding only that expert's rows."""
    n_out = w.shape[1]
    y = x @ w.rows(np.arange(e * n_out, (e + 1) * n_out)).T
    return y if bias is None else y + bias.vector[e]


def route(logits: np.ndarray, moe: MoEConfig, bias: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Router logits (T, n_experts) -> chosen experts (T, n_used), best first, and their weights."""
    probs = _sigmoid(logits) if moe.gating == "sigmoid" else _softmax(logits)
    if moe.gating == "softmax_after_topk":
        probs = logits
    ranked = probs if bias is None else probs + bias
    if moe.n_groups > 1:
        ranked = _mask_groups(ranked, moe)
    chosen = np.argsort(-ranked, axis=-1, kind="stable")[:, : moe.n_used]
    weights = np.take_along_axis(probs, chosen, axis=-1)
    if moe.gating == "softmax_after_topk":
        weights = _softmax(weights)
    if moe.normalize:
        weights = weights / np.maximum(
            weights.sum(axis=-1, keepdims=True), F32(6.103515625e-5)
        )  # as llama.cpp: f16 tiny
    return chosen, (weights * F32(moe.scale)).astype(F32)


def _mask_groups(ranked: np.ndarray, moe: MoEConfig) -> np.ndarray:
    """Deepseek: a group is worth the sum of its two best experts; experts outside the best groups drop out."""
    n = ranked.shape[0]
    groups = ranked.reshape(n, moe.n_groups, -1)
    worth = np.sort(groups, axis=-1)[..., -2:].sum(axis=-1)
    best = np.argsort(-worth, axis=-1, kind="stable")[:, : moe.n_groups_used]
    keep = np.zeros((n, moe.n_groups, 1), bool)
    np.put_along_axis(keep, best[..., None], True, axis=1)
    return np.where(keep, groups, F32(-np.inf)).reshape(n, -1)


def position_factors(start: int, n_tokens: int, every: int, scale: float) -> np.ndarray:
    """(T,) factors 1 + scale * log(1 + floor((position + 1) / every))."""
    steps = np.floor((np.arange(start, start + n_tokens) + 1.0) / every)
    return (np.log(steps + 1.0) * scale + 1.0).astype(F32)


def alibi_slopes(n_heads: int, max_bias: float) -> np.ndarray:
    """(H,) slopes of arXiv 2108.12409, with its rule for head counts that are no power of two."""
    n = 1 << (n_heads.bit_length() - 1)
    m0, m1 = 2.0 ** (-max_bias / n), 2.0 ** (-max_bias / 2 / n)
    return np.array([m0 ** (h + 1) if h < n else m1 ** (2 * (h - n) + 1) for h in range(n_heads)], F32)


def _visible(t: np.ndarray, s: np.ndarray, attn: AttentionConfig) -> np.ndarray:
    """May position t see position s?"""
    seen = s <= t
    if attn.window:
        seen = seen & (t - s < attn.window)
    if attn.chunk:
        seen = seen & (s // attn.chunk == t // attn.chunk)
    return seen


def _softmax(x: np.ndarray, sinks: np.ndarray | None = None) -> np.ndarray:
    """Over the last axis; `sinks` adds a logit to the denominator that has no value of its own."""
    top = x.max(axis=-1, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks)
    e = np.exp(x - top)
    total = e.sum(axis=-1, keepdims=True)
    return e / (total if sinks is None else total + np.exp(sinks - top))


def state_groups(s: StateConfig) -> np.ndarray:
    """(H,) the group of each head."""
    heads = np.arange(s.n_heads)
    return heads % s.n_groups if s.tiled_groups else heads // (s.n_heads // s.n_groups)


def _unit(x: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + F32(eps))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0).astype(F32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))  # never overflows
    return (np.where(x >= 0, F32(1), e) / (F32(1) + e)).astype(F32)


def _gelu(x: np.ndarray) -> np.ndarray:
    """The tanh approximation, as ggml's GELU."""
    return F32(0.5) * x * (F32(1) + np.tanh(F32(0.79788456080286535) * x * (F32(1) + F32(0.044715) * x * x)))


_ACTIVATIONS = {
    "silu": lambda x: x * _sigmoid(x),
    "gelu": _gelu,
    "sigmoid": _sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.square(np.maximum(x, 0)),
}
