"""The few operations that model code may use. A backend implements them; decoder.py is written over them.

Arrays are whatever the backend works with: they know `+`, `*` (array or number), `.shape`, `.reshape(*shape)`,
row slices `x[a:b]` and column slices `x[:, a:b]`. Activations are 2-D `(T, n)` unless said otherwise, float32 in
meaning (a GPU backend may hold float16). Weights are opaque to model code: GGUF matrices `(out, in)` in raw blocks,
or vectors. The reference for each operation is localinfer/backends/reference/ops.py, in numpy.

Recorded (models/program.py), the same calls become a Program that a backend runs at once.
"""

from __future__ import annotations

from typing import Any, Protocol

from localinfer.models.config import Activation, AttentionConfig, MoEConfig, RopeConfig

Array = Any
Weight = Any


class Ops(Protocol):
    def embed(self, w: Weight, ids: Any) -> Array:
        """Rows of raw blocks, decoded: ids (T,) -> (T, E)."""

    def linear(self, x: Array, w: Weight, bias: Weight | None = None) -> Array:
        """x (T, in), w (out, in) in raw blocks -> (T, out)."""

    def rms_norm(self, x: Array, w: Weight | None, eps: float) -> Array:
        """Over the last axis of (T, n) or (T, H, D): x / sqrt(mean(x^2) + eps) * w; sums in float32."""

    def layer_norm(self, x: Array, w: Weight | None, bias: Weight | None, eps: float) -> Array:
        """Over the last axis: (x - mean) / sqrt(var + eps) * w + bias."""

    def rope(self, x: Array, start: Any, rope: RopeConfig) -> Array:
        """Rotate (T, H, D) at positions start..start+T-1."""

    def attention(
        self, q: Array, k: Array, v: Array, kv: Any, layer: int, attn: AttentionConfig, sinks: Weight | None = None
    ) -> Array:
        """Append k (T, G, Dk) and v (T, G, Dv) to kv's layer, then attend causally: q (T, H, Dk) -> (T, H*Dv).

        Query head h reads key/value head h // (H / G). `sinks` (H,) are extra logits without a value.
        """

    def glu(self, gate: Array, up: Array, act: Activation) -> Array:
        """act(gate) * up, elementwise."""

    def activate(self, x: Array, act: Activation) -> Array:
        """act(x), elementwise, where a feed-forward has no gate."""

    def softcap(self, x: Array, cap: float) -> Array:
        """cap * tanh(x / cap)."""

    def moe(
        self,
        x: Array,
        router: Weight,
        gate: Weight | None,
        up: Weight,
        down: Weight,
        moe: MoEConfig,
        act: Activation,
        bias: Weight | None = None,
    ) -> Array:
        """Route x (T, E) by router (n_experts, E); experts' matrices are (n_experts, out, in), read in place."""
