"""The transformer stack, written once over Ops.

What a layer does follows from two things: its LayerConfig, and which tensors the file holds (a query norm, a bias, a
post-norm, fused projections, shared experts). So a family is a few lines of metadata and not a copy of this file.

Weights are looked up by their GGUF names: `blk.3.attn_q.weight` is `self.blocks[3]["attn_q.weight"]`.
Letters: T tokens, E model width, H query heads, G key/value heads, D head size, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from localinfer.errors import FormatError
from localinfer.models.config import LayerConfig, ModelConfig
from localinfer.models.ops import Array, MoEWeights, Ops, Weight
from localinfer.models.program import Program, Recorder


class Block:
    """The weights of one layer (or, with an empty prefix, of the whole model) by their GGUF name."""

    def __init__(self, weights: Mapping[str, Weight], index: int, prefix: str) -> None:
        self.index = index
        self._prefix = prefix
        self._weights = {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def __getitem__(self, name: str) -> Weight:
        if name not in self._weights:
            raise FormatError(f"expected a tensor {self._prefix}{name}, found none of that name in the file")
        return self._weights[name]

    def get(self, name: str) -> Weight | None:
        return self._weights.get(name)


class Decoder:
    """`forward(ops, ids, start, kv, rows)`: (T,) token ids -> (rows, V) logits of the last rows."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Weight]) -> None:
        self.config = config
        self.blocks = [Block(weights, i, f"blk.{i}.") for i in range(config.n_layers)]
        self.top = Block({n: w for n, w in weights.items() if not n.startswith("blk.")}, -1, "")
        self.output = self.top.get("output.weight") or self.top["token_embd.weight"]  # tied where there is no other

    def forward(self, ops: Ops, ids: Any, start: Any, kv: Any, rows: int) -> Array:
        """Append ids at position start to kv and return the logits of the last `rows` tokens (None for 0)."""
        c = self.config
        x = ops.embed(self.top["token_embd.weight"], ids)
        if c.embedding_scale != 1.0:
            x = x * c.embedding_scale
        if "position_embd.weight" in self.top:
            x = x + ops.embed_positions(self.top["position_embd.weight"], start, x.shape[0])
        for layer, block in zip(c.layers, self.blocks, strict=True):
            x = self._block(ops, x, start, kv, layer, block)
        return self._logits(ops, x[x.shape[0] - rows :]) if rows else None

    def record(self, n_tokens: int, n_rows: int) -> Program:
        """The same pass as a Program. Weights need a `.shape` only."""
        recorder = Recorder(n_tokens, n_rows)
        recorder.program.result = self.forward(recorder, None, None, None, n_rows)
        return recorder.program

    def _logits(self, ops: Ops, x: Array) -> Array:
        c = self.config
        x = self._norm(ops, x, self.top, "output_norm")
        logits = ops.linear(x, self.output, self.top.get("output.bias"))
        if c.logit_scale != 1.0:
            logits = logits * c.logit_scale
        return ops.softcap(logits, c.logit_softcap) if c.logit_softcap else logits

    def _block(self, ops: Ops, x: Array, start: Any, kv: Any, layer: LayerConfig, block: Block) -> Array:
        h = self._input_norm(ops, x, block, "attn_norm")
        first = self._norm(ops, x, block, "attn_norm_2") if "attn_norm_2.weight" in block else h
        attended = self._residual(self._attention(ops, first, start, kv, layer, block))
        if self.config.parallel_residual:
            h = self._norm(ops, x, block, "ffn_norm") if "ffn_norm.weight" in block else h
            return x + attended + self._residual(self._feed_forward(ops, h, layer, block))
        x = x + attended
        h = self._input_norm(ops, x, block, self.config.ffn_norm)
        return x + self._residual(self._feed_forward(ops, h, layer, block))

    def _attention(self, ops: Ops, h: Array, start: Any, kv: Any, layer: LayerConfig, block: Block) -> Array:
        a = layer.attention
        assert a is not None
        n = h.shape[0]
        q, k, v = self._qkv(ops, h, layer, block)
        q = self._position_and_norm(ops, q, start, layer, block, "attn_q_norm", a.n_heads)
        k = self._position_and_norm(ops, k, start, layer, block, "attn_k_norm", a.n_kv_heads)
        if a.temperature_every:
            q = ops.position_scale(q, start, a.temperature_every, a.temperature_scale)
        v = v.reshape(n, a.n_kv_heads, a.d_v)
        out = ops.attention(q, k, v, kv, block.index, a, block.get("attn_sinks.weight"))
        out = ops.linear(out, block["attn_output.weight"], block.get("attn_output.bias"))
        return self._own_post_norm(ops, out, block, "post_attention_norm")

    def _qkv(self, ops: Ops, h: Array, layer: LayerConfig, block: Block) -> Iterable[Array]:
        """Three projections, or one fused one cut in three."""
        if "attn_qkv.weight" not in block:
            return [ops.linear(h, block[f"attn_{p}.weight"], block.get(f"attn_{p}.bias")) for p in "qkv"]
        a = layer.attention
        assert a is not None
        fused = ops.linear(h, block["attn_qkv.weight"], block.get("attn_qkv.bias"))
        n_q, n_k = a.n_heads * a.d_k, a.n_kv_heads * a.d_k
        return fused[:, :n_q], fused[:, n_q : n_q + n_k], fused[:, n_q + n_k :]

    def _position_and_norm(
        self, ops: Ops, x: Array, start: Any, layer: LayerConfig, block: Block, norm: str, n_heads: int
    ) -> Array:
        """Queries or keys (T, H*D) -> (T, H, D), rotated and normalized in the order the model has."""
        order = self.config.head_norm
        if order == "before_rope":
            x = self._head_norm(ops, x, block, norm, n_heads)
        x = x.reshape(x.shape[0], n_heads, -1)
        if layer.rope is not None:
            x = ops.rope(x, start, layer.rope)
        if order == "after_rope":
            x = self._head_norm(ops, x, block, norm, n_heads)
        if order == "after_rope_unweighted" and layer.rope is not None:
            x = ops.rms_norm(x, None, self.config.norm_eps)
        return x

    def _head_norm(self, ops: Ops, x: Array, block: Block, name: str, n_heads: int) -> Array:
        """Where the file has one: over each head, or (a weight as long as all heads) over the whole row."""
        w = block.get(f"{name}.weight")
        if w is None:
            return x
        n = x.shape[0]
        width = x.shape[1] if len(x.shape) == 2 else x.shape[1] * x.shape[2]
        whole_row = len(w.shape) == 1 and w.shape[0] == width
        x = x.reshape(n, width) if whole_row else x.reshape(n, n_heads, -1)
        return self._norm(ops, x, block, name)

    def _feed_forward(self, ops: Ops, h: Array, layer: LayerConfig, block: Block) -> Array:
        out = self._experts(ops, h, layer, block) if layer.moe else self._gated(ops, h, layer, block, "")
        return self._own_post_norm(ops, out, block, "post_ffw_norm")

    def _gated(self, ops: Ops, h: Array, layer: LayerConfig, block: Block, suffix: str) -> Array:
        """down(act(gate h) * up h); `suffix` is `_shexp` for shared experts. Gate and up may be one matrix."""

        def project(x: Array, name: str) -> Array:
            return ops.linear(x, block[f"ffn_{name}{suffix}.weight"], block.get(f"ffn_{name}{suffix}.bias"))

        up = project(h, "up")
        width = block[f"ffn_down{suffix}.weight"].shape[-1]
        if f"ffn_gate{suffix}.weight" in block:
            inner = ops.glu(project(h, "gate"), up, layer.activation)
        elif up.shape[1] == 2 * width:  # gate first
            inner = ops.glu(up[:, :width], up[:, width:], layer.activation)
        else:
            inner = ops.activate(up, layer.activation)
        return project(inner, "down")

    def _experts(self, ops: Ops, h: Array, layer: LayerConfig, block: Block) -> Array:
        assert layer.moe is not None
        weights = MoEWeights(
            router=block["ffn_gate_inp.weight"],
            up=block["ffn_up_exps.weight"],
            down=block["ffn_down_exps.weight"],
            gate=block.get("ffn_gate_exps.weight"),
            router_bias=block.get("ffn_gate_inp.bias"),
            choice_bias=block.get("exp_probs_b.bias"),
            gate_bias=block.get("ffn_gate_exps.bias"),
            up_bias=block.get("ffn_up_exps.bias"),
            down_bias=block.get("ffn_down_exps.bias"),
        )
        out = ops.moe(h, weights, layer.moe, layer.activation)
        if "ffn_up_shexp.weight" not in block:
            return out
        shared = self._gated(ops, h, layer, block, "_shexp")
        if "ffn_gate_inp_shexp.weight" in block:  # (T, 1)
            shared = shared * ops.activate(ops.linear(h, block["ffn_gate_inp_shexp.weight"]), "sigmoid")
        return out + shared

    def _residual(self, x: Array) -> Array:
        scale = self.config.residual_scale
        return x if scale == 1.0 else x * scale

    def _norm(self, ops: Ops, x: Array, block: Block, name: str) -> Array:
        c = self.config
        if c.norm == "rms":
            return ops.rms_norm(x, block[f"{name}.weight"], c.norm_eps)
        return ops.layer_norm(x, block[f"{name}.weight"], block.get(f"{name}.bias"), c.norm_eps)

    def _input_norm(self, ops: Ops, x: Array, block: Block, name: str) -> Array:
        """The norm before a sub-block; models with norms only after their sub-blocks have none."""
        return self._norm(ops, x, block, name) if f"{name}.weight" in block else x

    def _own_post_norm(self, ops: Ops, x: Array, block: Block, name: str) -> Array:
        """The norm after a sub-block, unless that name is this model's norm before the feed-forward."""
        if f"{name}.weight" not in block or name == self.config.ffn_norm:
            return x
        return self._norm(ops, x, block, name)
