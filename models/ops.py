"""The few operations that model code may use. A backend implements them; decoder.py is written over them.

Arrays are whatever the backend works with. They know `+`, `*` (by a number, by the same shape, by one column),
`.shape`, `.reshape(*shape)`, row slices `x[a:b]` and column slices `x[:, a:b]`. Activations are 2-D `(T, n)` unless
said otherwise, float32 in meaning (a GPU backend may hold float16). Weights are opaque to model code: GGUF matrices
`(out, in)` in raw blocks, or vectors. The reference for each operation is localinfer/backends/reference/ops.py.

Recorded (models/program.py), the same calls become a Program that a backend runs at once.
"""

from __future__ import annotations

from typing import Any, Protocol

from localinfer.models.config import Activation, AttentionConfig, MoEConfig, RopeConfig, StateConfig
from localinfer.records import dataclass

Array = Any
Weight = Any


@dataclass(frozen=True)
class MoEWeights:
    """Experts' matrices are (n_experts, out, in), their biases (n_experts, out)."""

    router: Weight  # (n_experts, E)
    up: Weight
    down: Weight
    gate: Weight | None = None
    router_bias: Weight | None = None  # (n_experts,), added to the router's logits
    choice_bias: Weight | None = None  # (n_experts,), added to the probabilities for choosing only
    gate_bias: Weight | None = None
    up_bias: Weight | None = None
    down_bias: Weight | None = None


@dataclass(frozen=True)
class ScanWeights:
    """a is (H,), (H, 1) or (H, N), already negative; dt_bias and d are (H,) or (H, 1)."""

    a: Weight
    dt_bias: Weight
    d: Weight | None = None


class Ops(Protocol):
    def embed(self, w: Weight, ids: Any) -> Array:
        """Rows of raw blocks, decoded: ids (T,) -> (T, E)."""

    def embed_positions(self, w: Weight, start: Any, n_tokens: int) -> Array:
        """Rows start..start+n_tokens-1 of a learned position table: (T, E)."""

    def linear(self, x: Array, w: Weight, bias: Weight | None = None) -> Array:
        """x (T, in), w (out, in) in raw blocks -> (T, out). A weight of one axis is a matrix of one row."""

    def rms_norm(self, x: Array, w: Weight | None, eps: float) -> Array:
        """Over the last axis of (T, n) or (T, H, D): x / sqrt(mean(x^2) + eps) * w; sums in float32.

        w is (n,), or (D,) for all heads, or (H, D).
        """

    def layer_norm(self, x: Array, w: Weight | None, bias: Weight | None, eps: float) -> Array:
        """Over the last axis: (x - mean) / sqrt(var + eps) * w + bias; shapes as in rms_norm."""

    def rope(self, x: Array, start: Any, rope: RopeConfig) -> Array:
        """Rotate (T, H, D) at positions start..start+T-1."""

    def position_scale(self, x: Array, start: Any, every: int, scale: float) -> Array:
        """x (T, ...) of position p times 1 + scale * log(1 + floor((p + 1) / every)) (llama4's long contexts)."""

    def attention(
        self,
        q: Array,
        k: Array,
        v: Array | None,
        kv: Any,
        layer: int,
        attn: AttentionConfig,
        sinks: Weight | None = None,
    ) -> Array:
        """Append k (T, G, Dk) and v (T, G, Dv) to kv's layer, then attend causally: q (T, H, Dk) -> (T, H*Dv).

        Query head h reads key/value head h // (H / G). With attn.v_in_k, v is None: the first Dv numbers of a key
        are its value. `sinks` (H,) are extra logits without a value.
        """

    def glu(self, gate: Array, up: Array, act: Activation) -> Array:
        """act(gate) * up, elementwise."""

    def activate(self, x: Array, act: Activation) -> Array:
        """act(x), elementwise, where a feed-forward has no gate."""

    def softcap(self, x: Array, cap: float) -> Array:
        """cap * tanh(x / cap)."""

    def head_slice(self, x: Array, first: int, end: int) -> Array:
        """x (T, H, n) -> (T, H, end - first): a part of every head."""

    def head_concat(self, a: Array, b: Array) -> Array:
        """a (T, H, m), b (T, H or 1, n) -> (T, H, m + n)."""

    def head_linear(self, x: Array, w: Weight) -> Array:
        """x (T, H, in), w (H, out, in): every head through its own matrix -> (T, H, out)."""

    def causal_conv(self, x: Array, w: Weight, bias: Weight | None, kv: Any, layer: int, state: StateConfig) -> Array:
        """Each channel with its own taps over time: x (T, C), w (C, K) -> (T, C), the newest tap last.

        The K-1 rows before x come from kv's layer, and the last K-1 rows go there.
        """

    def scan(
        self, x: Array, dt: Array, b: Array, c: Array, w: ScanWeights, kv: Any, layer: int, s: StateConfig
    ) -> Array:
        """Selective state space (Mamba): x (T, H, P), dt (T, H), b and c (T, G, N) -> (T, H, P).

        With step = softplus(dt + dt_bias): S = S * exp(step * a) + step * x b^T; y = S c + d * x. S (H, P, N) in kv.
        """

    def delta_rule(
        self,
        q: Array,
        k: Array,
        v: Array,
        alpha: Array,
        beta: Array,
        w: ScanWeights,
        kv: Any,
        layer: int,
        s: StateConfig,
        eps: float,
    ) -> Array:
        """Gated delta rule (arXiv 2412.06464): q and k (T, G, N), v (T, H, P), alpha and beta (T, H) -> (T, H, P).

        q and k are divided by sqrt(|.|^2 + eps), q also by sqrt(N). Then S = S * exp(softplus(alpha + dt_bias) * a);
        S = S + sigmoid(beta) * (v - S k) k^T; y = S q. S (H, P, N) in kv.
        """

    def moe(self, x: Array, w: MoEWeights, moe: MoEConfig, act: Activation) -> Array:
        """Route each row of x (T, E) to its experts and sum their weighted outputs: (T, E)."""
