"""The model operations on MLX arrays, one to one with the numpy reference.

Activations are float32 (mlx-cpu computes half precision 40 times slower; gpu_ops.py says what a GPU rounds, and where).
Everything is lazy: nothing runs before the model evaluates the logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import mlx.core as mx
import numpy as np

from localinfer.backends.mlx.kv import MLXKV, rotate
from localinfer.backends.mlx.kv_codec import encode
from localinfer.backends.reference.ops import alibi_slopes, position_factors, route, state_groups
from localinfer.kv.spec import rotation
from localinfer.models.config import Activation, AttentionConfig, MoEConfig, RopeConfig, StateConfig
from localinfer.models.ops import MoEWeights, ScanWeights, Weight


class MLXOps:
    def embed(self, w: Weight, ids: Sequence[int]) -> mx.array:
        return w.rows(ids)

    def embed_positions(self, w: Weight, start: int, n_tokens: int) -> mx.array:
        return w.rows(range(start, start + n_tokens))

    def linear(self, x: mx.array, w: Weight, bias: Weight | None = None) -> mx.array:
        y = x @ w.dense.reshape(-1, w.shape[-1]).T
        return y if bias is None else y + bias.dense

    def rms_norm(self, x: mx.array, w: Weight | None, eps: float) -> mx.array:
        if w is None or w.dense.ndim == 1:
            return mx.fast.rms_norm(x, None if w is None else w.dense, eps)
        return mx.fast.rms_norm(x, None, eps) * w.dense

    def layer_norm(self, x: mx.array, w: Weight | None, bias: Weight | None, eps: float) -> mx.array:
        y = mx.fast.layer_norm(x, None, None, eps)
        y = y if w is None else y * w.dense
        return y if bias is None else y + bias.dense

    def rope(self, x: mx.array, start: int, rope: RopeConfig) -> mx.array:
        cos, sin = angles(rope, start, x.shape[0])
        rotated, rest = x[..., : rope.n_dims], x[..., rope.n_dims :]
        if rope.style == "interleaved":
            pairs = rotated.reshape(*x.shape[:-1], -1, 2)
            a, b = pairs[..., 0], pairs[..., 1]
            y = mx.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(rotated.shape)
        else:
            a, b = rotated[..., : rope.n_dims // 2], rotated[..., rope.n_dims // 2 :]
            y = mx.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
        return y if rest.shape[-1] == 0 else mx.concatenate([y, rest], axis=-1)

    def position_scale(self, x: mx.array, start: int, every: int, scale: float) -> mx.array:
        factor = position_factors(start, x.shape[0], every, scale)
        return x * mx.array(factor.reshape(-1, *[1] * (x.ndim - 1)))

    def attention(
        self,
        q: mx.array,
        k: mx.array,
        v: mx.array | None,
        kv: MLXKV,
        layer: int,
        attn: AttentionConfig,
        sinks: Weight | None = None,
    ) -> mx.array:
        """Keys and values of types that share scales are stored rotated: the query turns with the keys, the result
        back."""
        spec, n = kv.spec.layers[layer], q.shape[0]
        turn_k, turn_v = (rotation(t, d) for t, d in ((spec.k_type, spec.d_k), (spec.v_type, spec.d_v)))
        if v is None:  # values are part of the keys
            turn_k = turn_v = 0
        v = v if v is None else rotate(v, turn_v)
        out = self.attend(rotate(q, turn_k), rotate(k, turn_k), v, kv, layer, attn, sinks)
        return rotate(out.reshape(n, attn.n_heads, attn.d_v), turn_v).reshape(out.shape) if turn_v else out

    def attend(
        self,
        q: mx.array,
        k: mx.array,
        v: mx.array | None,
        kv: MLXKV,
        layer: int,
        attn: AttentionConfig,
        sinks: Weight | None,
    ) -> mx.array:
        """Store k and v, and attend to what is stored: (T, H * Dv)."""
        start, n = kv.length, q.shape[0]
        slots = kv.append(layer, k, v)
        keys, values = (x[None].astype(q.dtype) for x in kv.read(layer, 0, slots.n_slots))  # (1, G, S, D)
        query = q.transpose(1, 0, 2)[None]  # (1, H, T, D)
        sink = None if sinks is None else sinks.dense
        if attn.softcap or attn.alibi_max_bias:
            out = _unfused_attention(query, keys, values, attn, start, slots.positions(), sink)
        else:
            mask = mx.array(visible(start, n, slots.positions(), attn))
            out = mx.fast.scaled_dot_product_attention(query, keys, values, scale=attn.scale, mask=mask, sinks=sink)
        return out[0].transpose(1, 0, 2).reshape(n, attn.n_heads * attn.d_v)

    def encode_kv(self, x: mx.array, kv_type: str) -> mx.array:
        """Keys or values (T, G, D) as the cache stores them."""
        return encode(x, kv_type)

    def glu(self, gate: mx.array, up: mx.array, act: Activation) -> mx.array:
        if act == "swiglu_oai":
            gate, up = mx.minimum(gate, 7.0), mx.clip(up, -7.0, 7.0)
            return gate * mx.sigmoid(1.702 * gate) * (up + 1.0)
        return self.activate(gate, act) * up

    def activate(self, x: mx.array, act: Activation) -> mx.array:
        return _ACTIVATIONS[act](x)

    def softcap(self, x: mx.array, cap: float) -> mx.array:
        return cap * mx.tanh(x / cap)

    def head_slice(self, x: mx.array, first: int, end: int) -> mx.array:
        return x[..., first:end]

    def head_concat(self, a: mx.array, b: mx.array) -> mx.array:
        return mx.concatenate([a, mx.broadcast_to(b, (*a.shape[:2], b.shape[2]))], axis=-1)

    def head_linear(self, x: mx.array, w: Weight) -> mx.array:
        return (x.transpose(1, 0, 2) @ w.dense.swapaxes(-1, -2)).transpose(1, 0, 2)

    def causal_conv(
        self, x: mx.array, w: Weight, bias: Weight | None, kv: MLXKV, layer: int, state: StateConfig
    ) -> mx.array:
        n = x.shape[0]
        past = kv.state(layer, "conv", (state.conv_kernel - 1, state.conv_channels))
        rows = mx.concatenate([past, x])
        kv.set_state(layer, "conv", rows[n:])
        y = rows[:n] * w.dense[:, 0]
        for k in range(1, state.conv_kernel):
            y = y + rows[k : k + n] * w.dense[:, k]
        return y if bias is None else y + bias.dense

    def scan(
        self,
        x: mx.array,
        dt: mx.array,
        b: mx.array,
        c: mx.array,
        w: ScanWeights,
        kv: MLXKV,
        layer: int,
        s: StateConfig,
    ) -> mx.array:
        memory = kv.state(layer, "scan", (s.n_heads, s.d_head, s.d_state))
        step = softplus(dt + w.dt_bias.dense.reshape(-1))
        decay = mx.exp(step[:, :, None] * w.a.dense.reshape(s.n_heads, -1))
        group = mx.array(state_groups(s))
        b, c = b[:, group], c[:, group]  # (T, H, N)
        rows = []
        for t in range(x.shape[0]):
            memory = memory * decay[t][:, None, :] + (step[t][:, None] * x[t])[:, :, None] * b[t][:, None, :]
            rows.append((memory * c[t][:, None, :]).sum(axis=-1))
        kv.set_state(layer, "scan", memory)
        y = mx.stack(rows)
        return y if w.d is None else y + x * w.d.dense.reshape(-1, 1)

    def delta_rule(
        self,
        q: mx.array,
        k: mx.array,
        v: mx.array,
        alpha: mx.array,
        beta: mx.array,
        w: ScanWeights,
        kv: MLXKV,
        layer: int,
        s: StateConfig,
        eps: float,
    ) -> mx.array:
        memory = kv.state(layer, "scan", (s.n_heads, s.d_head, s.d_state))
        group = mx.array(state_groups(s))
        q, k = unit(q, eps)[:, group] * s.d_state**-0.5, unit(k, eps)[:, group]
        decay = mx.exp(softplus(alpha + w.dt_bias.dense.reshape(-1)) * w.a.dense.reshape(-1))
        rate = mx.sigmoid(beta)
        rows = []
        for t in range(v.shape[0]):
            memory = memory * decay[t][:, None, None]
            error = v[t] - (memory * k[t][:, None, :]).sum(axis=-1)
            memory = memory + (rate[t][:, None] * error)[:, :, None] * k[t][:, None, :]
            rows.append((memory * q[t][:, None, :]).sum(axis=-1))
        kv.set_state(layer, "scan", memory)
        return mx.stack(rows)

    def moe(self, x: mx.array, w: MoEWeights, moe: MoEConfig, act: Activation) -> mx.array:
        chosen, weights = _route(self.linear(x, w.router, w.router_bias), moe, w.choice_bias)
        return self._routed(x, w, moe, act, chosen, weights)

    def _routed(
        self, x: mx.array, w: MoEWeights, moe: MoEConfig, act: Activation, chosen: mx.array, weights: mx.array
    ) -> mx.array:
        """Decoded experts, gathered."""
        row = x[:, None, None, :]  # (T, 1, 1, E) @ (T, n_used, E, F)
        if moe.weigh_input:
            row = row * weights[:, :, None, None]
        up = _expert_linear(row, w.up, w.up_bias, chosen)
        if w.gate is None:
            inner = self.activate(up, act)
        else:
            inner = self.glu(_expert_linear(row, w.gate, w.gate_bias, chosen), up, act)
        out = _expert_linear(inner, w.down, w.down_bias, chosen)[:, :, 0, :]
        return (out if moe.weigh_input else out * weights[:, :, None]).sum(axis=1)


def _expert_linear(x: mx.array, w: Weight, bias: Weight | None, chosen: mx.array) -> mx.array:
    """x (T, n_used or 1, 1, in) through each row's chosen experts -> (T, n_used, 1, out)."""
    y = (x @ w.dense[chosen].swapaxes(-1, -2)).astype(x.dtype)
    return y if bias is None else y + bias.dense[chosen][:, :, None, :]


def _route(logits: mx.array, moe: MoEConfig, bias: Weight | None) -> tuple[mx.array, mx.array]:
    """The choice is made on the host by the reference: it is a few numbers a token, and ties fall the same way."""
    chosen, weights = route(np.array(logits), moe, None if bias is None else np.array(bias.dense))
    return mx.array(chosen.astype(np.int32)), mx.array(weights)


@lru_cache(maxsize=8)
def angles(rope: RopeConfig, start: int, n: int) -> tuple[mx.array, mx.array]:
    """cos and sin, (T, 1, n_dims/2); float64 on the host because positions grow large."""
    angle = np.arange(start, start + n, dtype=np.float64)[:, None, None] * np.asarray(rope.inv_freq)
    m = rope.magnitude
    return mx.array((np.cos(angle) * m).astype(np.float32)), mx.array((np.sin(angle) * m).astype(np.float32))


def visible(start: int, n: int, positions: np.ndarray, attn: AttentionConfig) -> np.ndarray:
    """(T, S) bool: may a token at position start + t see the position in slot s?"""
    t, s = np.arange(start, start + n)[:, None], positions[None, :]
    seen = s <= t
    if attn.window:
        seen &= t - s < attn.window
    if attn.chunk:
        seen &= s // attn.chunk == t // attn.chunk
    return seen


def _unfused_attention(
    query: mx.array,
    keys: mx.array,
    values: mx.array,
    attn: AttentionConfig,
    start: int,
    positions: np.ndarray,
    sinks: mx.array | None,
) -> mx.array:
    """With scores written out, for what the fused operation lacks: softcap and alibi."""
    group = attn.n_heads // attn.n_kv_heads
    keys, values = mx.repeat(keys, group, axis=1), mx.repeat(values, group, axis=1)
    scores = (query @ keys.swapaxes(-1, -2)) * attn.scale
    if attn.softcap:
        scores = attn.softcap * mx.tanh(scores / attn.softcap)
    if attn.alibi_max_bias:
        distance = positions[None, :] - np.arange(start, start + query.shape[2])[:, None]
        slopes = alibi_slopes(attn.n_heads, attn.alibi_max_bias)
        scores = scores + mx.array(slopes[:, None, None] * distance.astype(np.float32))
    scores = mx.where(mx.array(visible(start, query.shape[2], positions, attn)), scores, -math.inf)
    if sinks is not None:
        column = mx.broadcast_to(sinks.reshape(1, -1, 1, 1), (*scores.shape[:3], 1))
        return mx.softmax(mx.concatenate([column, scores], axis=-1), axis=-1, precise=True)[..., 1:] @ values
    return mx.softmax(scores, axis=-1, precise=True) @ values


def softplus(x: mx.array) -> mx.array:
    return mx.logaddexp(x, mx.array(0.0))


def unit(x: mx.array, eps: float) -> mx.array:
    return x * mx.rsqrt((x * x).sum(axis=-1, keepdims=True) + eps)


def _gelu(x: mx.array) -> mx.array:
    return 0.5 * x * (1.0 + mx.tanh(0.79788456080286535 * x * (1.0 + 0.044715 * x * x)))


_ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "silu": lambda x: x * mx.sigmoid(x),
    "gelu": _gelu,
    "sigmoid": mx.sigmoid,
    "relu": lambda x: mx.maximum(x, 0.0),
    "relu2": lambda x: mx.square(mx.maximum(x, 0.0)),
}
