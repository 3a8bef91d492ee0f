"""The model operations on a GPU: MLX's own where it has them, our kernels over raw blocks where it has not.

Types: the residual stream, norms and everything that adds up is float32, which costs a GPU nothing while it waits for
weights and spares models whose activations leave float16's range (Gemma). Matrix-matrix products and attention's inputs
are in the device's half precision (device.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import mlx.core as mx
import numpy as np

from localinfer.backends.mlx.gpu_attention import GpuAttention
from localinfer.backends.mlx.gpu_linear import SMALL_ROWS, BlockLinear, width_of
from localinfer.backends.mlx.gpu_route import Sorted, by_expert, one_by_one, route
from localinfer.backends.mlx.kernels import plain_kernel
from localinfer.backends.mlx.kv import MLXKV
from localinfer.backends.mlx.kv_codec import encode, row_elements
from localinfer.backends.mlx.launch import Launcher, ints, whole
from localinfer.backends.mlx.ops import MLXOps, angles, softplus, unit
from localinfer.backends.mlx.weights import BlockWeight
from localinfer.models.config import Activation, AttentionConfig, MoEConfig, RopeConfig, StateConfig
from localinfer.models.ops import MoEWeights, ScanWeights, Weight

_ACT = {"silu": 0, "gelu": 1, "relu": 2, "relu2": 3, "sigmoid": 4, "swiglu_oai": 5}
_THREADS = 256
LAYERS_AT_ONCE = 4  # that are handed to the device together: MLX lets ten such tasks wait


class GpuOps(MLXOps):
    def __init__(self, launcher: Launcher, half: mx.Dtype) -> None:
        self._gpu = launcher
        self._blocks = BlockLinear(launcher, half)
        self._attention = GpuAttention(launcher, half)

    # -- matrices -----------------------------------------------------------------------------------------------------

    def embed(self, w: Weight, ids: Sequence[int]) -> mx.array:
        return self._blocks.rows(w, ids) if isinstance(w, BlockWeight) else w.rows(ids)

    def embed_positions(self, w: Weight, start: int, n_tokens: int) -> mx.array:
        return self.embed(w, range(start, start + n_tokens))

    def linear(self, x: mx.array, w: Weight, bias: Weight | None = None) -> mx.array:
        added = None if bias is None else bias.dense
        if isinstance(w, BlockWeight):
            return self._blocks.linear(x, w, added)
        matrix = w.dense.reshape(-1, w.shape[-1])
        y = (x.astype(matrix.dtype) @ matrix.T).astype(mx.float32)
        return y if added is None else y + added

    def head_linear(self, x: mx.array, w: Weight) -> mx.array:
        n, n_heads, n_out = x.shape[0], w.shape[0], w.shape[1]
        if not isinstance(w, BlockWeight):
            return super().head_linear(x.astype(w.dense.dtype), w).astype(mx.float32)
        if n <= SMALL_ROWS:
            y = self._blocks.experts(x.transpose(1, 0, 2).reshape(n * n_heads, -1), w, _heads(n_heads, n))
            return y.reshape(n_heads, n, n_out).transpose(1, 0, 2)
        matrices = self._blocks.matrix(w, 0, n_heads * n_out).reshape(n_heads, n_out, w.n_in)
        y = x.transpose(1, 0, 2).astype(matrices.dtype) @ matrices.swapaxes(-1, -2)
        return y.transpose(1, 0, 2).astype(mx.float32)

    def moe(self, x: mx.array, w: MoEWeights, moe: MoEConfig, act: Activation) -> mx.array:
        logits = self.linear(x, w.router, w.router_bias)
        chosen, weights = route(logits, moe, None if w.choice_bias is None else w.choice_bias.dense)
        stacks = [m for m in (w.up, w.gate, w.down) if m is not None]
        if not all(isinstance(m, BlockWeight) for m in stacks):
            return self._routed(x, w, moe, act, chosen, weights)
        return self._experts(x, w, moe, act, chosen, weights)

    def _experts(
        self, x: mx.array, w: MoEWeights, moe: MoEConfig, act: Activation, chosen: mx.array, weights: mx.array
    ) -> mx.array:
        """Pairs of a token and an expert, sorted by expert, through its blocks where they are: a tile of up to 16 pairs
        reads them once. Nothing waits for the router."""
        n, n_used = chosen.shape
        by = one_by_one(chosen.reshape(-1)) if n == 1 else by_expert(chosen.reshape(-1), w.up.shape[0], width_of(n))
        share = n_used if n == 1 and not moe.weigh_input else 1
        if moe.weigh_input:
            x = x[by.order // n_used] * weights.reshape(-1, 1)[by.order]
        elif n > 1:
            x = x[by.order // n_used]
        up = _plus(self._blocks.experts(x, w.up, by, share), w.up_bias, by.experts)
        if w.gate is None:
            inner = self.activate(up, act)
        else:
            inner = self.glu(_plus(self._blocks.experts(x, w.gate, by, share), w.gate_bias, by.experts), up, act)
        out = _plus(self._blocks.experts(inner, w.down, by), w.down_bias, by.experts)
        out = (out if n == 1 else out[by.back]).reshape(n, n_used, -1)
        return (out if moe.weigh_input else out * weights[:, :, None]).sum(axis=1)

    # -- attention and states -----------------------------------------------------------------------------------------

    def rope(self, x: mx.array, start: int, rope: RopeConfig) -> mx.array:
        cosines, sines = angles(rope, start, x.shape[0])
        sizes = ints(x.size, x.shape[1], x.shape[2], rope.n_dims, int(rope.style == "interleaved"))
        return self._each("rope", x, [x, cosines, sines, sizes], [])

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
        slots = kv.append(layer, k, v)
        return _begun(self._attention(q, kv, layer, slots, attn, None if sinks is None else sinks.dense), layer)

    def encode_kv(self, x: mx.array, kv_type: str) -> mx.array:
        """(T, G, D) -> (T, G, row_elements), as kv_codec.encode, in one launch for block types."""
        if kv_type not in ("q8_0", "q4_0"):
            return encode(x, kv_type)
        n_blocks, n_bytes = x.size // 32, 34 if kv_type == "q8_0" else 18
        stored = self._gpu.launch(
            plain_kernel(f"store_{kv_type}"),
            [x],
            [],
            (32 * n_blocks, 1, 1),
            (32, 1, 1),
            [(n_blocks, n_bytes)],
            [mx.uint8],
        )[0]
        return stored.view(mx.uint16).reshape(*x.shape[:-1], row_elements(kv_type, x.shape[-1]))

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
        step = softplus(dt + w.dt_bias.dense.reshape(-1))
        decay = mx.exp(step[:, :, None] * w.a.dense.reshape(s.n_heads, -1))
        sizes = (x.shape[0], s.n_heads, s.d_head, s.d_state, s.n_groups, decay.shape[2], int(s.tiled_groups))
        y = self._recurrence("scan", [x, step, decay, b, c], sizes, kv, layer, s)
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
        q, k = unit(q, eps) * s.d_state**-0.5, unit(k, eps)
        decay = mx.exp(softplus(alpha + w.dt_bias.dense.reshape(-1)) * w.a.dense.reshape(-1))
        sizes = (v.shape[0], s.n_heads, s.d_head, s.d_state, s.n_groups, int(s.tiled_groups))
        return self._recurrence("delta_rule", [q, k, v, decay, mx.sigmoid(beta)], sizes, kv, layer, s)

    def _recurrence(
        self, op: str, inputs: list[mx.array], sizes: tuple[int, ...], kv: MLXKV, layer: int, s: StateConfig
    ) -> mx.array:
        """All tokens in one launch; the memory stays in registers."""
        shape = (s.n_heads, s.d_head, s.d_state)
        y, after = self._gpu.launch(
            plain_kernel(op), [*inputs, kv.state(layer, "scan", shape), ints(*sizes)],
            [("COLUMNS", -(-s.d_state // 32))], (32, s.d_head, s.n_heads), (32, 1, 1),
            [(sizes[0], s.n_heads, s.d_head), shape], [mx.float32, mx.float32],
        )  # fmt: skip
        kv.set_state(layer, "scan", after)
        return _begun(y, layer)

    # -- value by value -----------------------------------------------------------------------------------------------

    def glu(self, gate: mx.array, up: mx.array, act: Activation) -> mx.array:
        return self._each("glu", gate, [gate, up, ints(gate.size)], [("ACT", _ACT[act])])

    def _each(self, op: str, like: mx.array, inputs: list[mx.array], template: list[tuple[str, int]]) -> mx.array:
        """One thread a value."""
        return self._gpu.launch(
            plain_kernel(op), inputs, template, (whole(like.size, _THREADS), 1, 1), (_THREADS, 1, 1),
            [like.shape], [mx.float32],
        )[0]  # fmt: skip


def _begun(y: mx.array, layer: int) -> mx.array:
    """Decoding: the device begins with these layers while Python, a third of a millisecond a layer, builds the next."""
    if y.shape[0] <= SMALL_ROWS and layer % LAYERS_AT_ONCE == LAYERS_AT_ONCE - 1:
        mx.async_eval(y)
    return y


@lru_cache(maxsize=64)
def _heads(n_heads: int, n: int) -> Sorted:
    """n rows for each head, head by head."""
    heads = np.arange(n_heads, dtype=np.int32)
    tiles = np.stack([heads, heads * n, np.full(n_heads, n, np.int32)], axis=1)
    return Sorted(mx.array(np.arange(n_heads * n)), mx.array(np.repeat(heads, n)), mx.array(tiles), width_of(n))


def _plus(y: mx.array, bias: Weight | None, pairs: mx.array) -> mx.array:
    """y (n_pairs, out) plus each pair's row of bias (n_experts, out)."""
    return y if bias is None else y + bias.dense[pairs]
