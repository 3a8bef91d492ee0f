"""The transformer stack, written once over Ops.

What a layer does follows from two things: its LayerConfig, and which tensors the file holds (a query norm, a bias, a
post-norm, fused projections). So a family is a few lines of metadata and not a copy of this file.

Weights are looked up by their GGUF names: `blk.3.attn_q.weight` is `self.blocks[3]["attn_q.weight"]`.
Letters: T tokens, E model width, H query heads, G key/value heads, D head size, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from localinfer.errors import FormatError
from localinfer.models.config import LayerConfig, ModelConfig
from localinfer.models.ops import Array, Ops, Weight
from localinfer.models.program import Program, Recorder


class Block:
    """The weights of one layer by their GGUF name without `blk.N.`; each must be used by the decoder."""

    def __init__(self, weights: Mapping[str, Weight], index: int) -> None:
        prefix = f"blk.{index}."
        self.index = index
        self._weights = {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def __getitem__(self, name: str) -> Weight:
        if name not in self._weights:
            raise FormatError(f"tensor blk.{self.index}.{name} is missing")
        return self._weights[name]

    def get(self, name: str) -> Weight | None:
        return self._weights.get(name)


class Decoder:
    """`forward(ids, start, kv, rows)`: (T,) token ids -> (rows, V) logits of the last rows."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Weight]) -> None:
        self.config = config
        self.weights = weights
        self.blocks = [Block(weights, i) for i in range(config.n_layers)]
        if "token_embd.weight" not in weights:
            raise FormatError("tensor token_embd.weight is missing")
        self.output = weights.get("output.weight", weights["token_embd.weight"])  # tied where there is no other

    def forward(self, ops: Ops, ids: Any, start: Any, kv: Any, rows: int) -> Array:
        """Append ids at position start to kv and return the logits of the last `rows` tokens (None for 0)."""
        c = self.config
        x = ops.embed(self.weights["token_embd.weight"], ids)
        if c.embedding_scale != 1.0:
            x = x * c.embedding_scale
        for layer, block in zip(c.layers, self.blocks, strict=True):
            x = self._block(ops, x, start, kv, layer, block)
        if rows == 0:
            return None
        return self._logits(ops, x[x.shape[0] - rows :])

    def record(self, n_tokens: int, n_rows: int) -> Program:
        """The same pass as a Program. Weights need a `.shape` only."""
        recorder = Recorder(n_tokens, n_rows)
        recorder.program.result = self.forward(recorder, None, None, None, n_rows)
        return recorder.program

    def _logits(self, ops: Ops, x: Array) -> Array:
        c = self.config
        x = self._norm(ops, x, self.weights, "output_norm")
        logits = ops.linear(x, self.output, self.weights.get("output.bias"))
        if c.logit_scale != 1.0:
            logits = logits * c.logit_scale
        return ops.softcap(logits, c.logit_softcap) if c.logit_softcap else logits

    def _block(self, ops: Ops, x: Array, start: Any, kv: Any, layer: LayerConfig, block: Block) -> Array:
        h = self._norm(ops, x, block, "attn_norm")
        attended = self._residual(self._attention(ops, h, start, kv, layer, block))
        if self.config.parallel_residual:
            h = self._norm(ops, x, block, "ffn_norm") if "ffn_norm.weight" in block else h
            return x + attended + self._residual(self._feed_forward(ops, h, layer, block))
        x = x + attended
        h = self._norm(ops, x, block, "ffn_norm")
        return x + self._residual(self._feed_forward(ops, h, layer, block))

    def _attention(self, ops: Ops, h: Array, start: Any, kv: Any, layer: LayerConfig, block: Block) -> Array:
        a = layer.attention
        assert a is not None
        n = h.shape[0]
        q, k, v = self._qkv(ops, h, layer, block)
        q = self._head_norm(ops, q.reshape(n, a.n_heads, a.d_k), block, "attn_q_norm")
        k = self._head_norm(ops, k.reshape(n, a.n_kv_heads, a.d_k), block, "attn_k_norm")
        if layer.rope is not None:
            q, k = ops.rope(q, start, layer.rope), ops.rope(k, start, layer.rope)
        v = v.reshape(n, a.n_kv_heads, a.d_v)
        out = ops.attention(q, k, v, kv, block.index, a, block.get("attn_sinks.weight"))
        out = ops.linear(out, block["attn_output.weight"], block.get("attn_output.bias"))
        return self._post_norm(ops, out, block, "post_attention_norm")

    def _qkv(self, ops: Ops, h: Array, layer: LayerConfig, block: Block) -> Iterable[Array]:
        """Three projections, or one fused one cut in three."""
        if "attn_qkv.weight" not in block:
            return [ops.linear(h, block[f"attn_{p}.weight"], block.get(f"attn_{p}.bias")) for p in "qkv"]
        a = layer.attention
        assert a is not None
        fused = ops.linear(h, block["attn_qkv.weight"], block.get("attn_qkv.bias"))
        n_q, n_k = a.n_heads * a.d_k, a.n_kv_heads * a.d_k
        return fused[:, :n_q], fused[:, n_q : n_q + n_k], fused[:, n_q + n_k :]

    def _feed_forward(self, ops: Ops, h: Array, layer: LayerConfig, block: Block) -> Array:
        out = self._moe(ops, h, layer, block) if layer.moe else self._dense(ops, h, layer, block)
        return self._post_norm(ops, out, block, "post_ffw_norm")

    def _dense(self, ops: Ops, h: Array, layer: LayerConfig, block: Block) -> Array:
        up = ops.linear(h, block["ffn_up.weight"], block.get("ffn_up.bias"))
        if "ffn_gate.weight" in block:
            gate = ops.linear(h, block["ffn_gate.weight"], block.get("ffn_gate.bias"))
            inner = ops.glu(gate, up, layer.activation)
        elif up.shape[1] == 2 * layer.n_ff:  # gate and up in one matrix, gate first
            inner = ops.glu(up[:, : layer.n_ff], up[:, layer.n_ff :], layer.activation)
        else:
            inner = ops.activate(up, layer.activation)
        return ops.linear(inner, block["ffn_down.weight"], block.get("ffn_down.bias"))

    def _moe(self, ops: Ops, h: Array, layer: LayerConfig, block: Block) -> Array:
        assert layer.moe is not None
        return ops.moe(
            h,
            block["ffn_gate_inp.weight"],
            block.get("ffn_gate_exps.weight"),
            block["ffn_up_exps.weight"],
            block["ffn_down_exps.weight"],
            layer.moe,
            layer.activation,
            block.get("exp_probs_b.bias"),
        )

    def _residual(self, x: Array) -> Array:
        scale = self.config.residual_scale
        return x if scale == 1.0 else x * scale

    def _norm(self, ops: Ops, x: Array, weights: Mapping[str, Weight] | Block, name: str) -> Array:
        c = self.config
        w = weights.get(f"{name}.weight")
        if w is None:
            raise FormatError(f"tensor {name}.weight is missing")
        if c.norm == "rms":
            return ops.rms_norm(x, w, c.norm_eps)
        return ops.layer_norm(x, w, weights.get(f"{name}.bias"), c.norm_eps)

    def _head_norm(self, ops: Ops, x: Array, block: Block, name: str) -> Array:
        """Query and key norms over each head, where the file has them."""
        return ops.rms_norm(x, block[f"{name}.weight"], self.config.norm_eps) if f"{name}.weight" in block else x

    def _post_norm(self, ops: Ops, x: Array, block: Block, name: str) -> Array:
        return self._norm(ops, x, block, name) if f"{name}.weight" in block else x
