"""The transformer stack, written once over Ops.

What a layer does follows from two things: its LayerConfig, and which tensors the file holds (a bias, a post-norm,
fused projections, shared experts). So a family is a few lines of metadata and not a copy of this file. How tokens
see each other is the mixers' business (models/mixers/).

Letters: T tokens, E model width, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from localinfer.errors import UnsupportedModel
from localinfer.models.block import Block
from localinfer.models.config import ModelConfig
from localinfer.models.mixers import MIXERS, Place
from localinfer.models.ops import Array, MoEWeights, Ops, Weight
from localinfer.models.program import Program, Recorder

if TYPE_CHECKING:
    from localinfer.formats.gguf import TensorInfo

READ_WITH_CONFIG = ("rope_freqs.", "rope_factors_")  # already inside RopeConfig


def _by_layer(weights: Mapping[str, Weight]) -> dict[str, dict[str, Weight]]:
    """Weights under `blk.N.`, or under the empty string: one pass, where a scan a layer costs a deep model 20 ms."""
    parts: dict[str, dict[str, Weight]] = {}
    for name, weight in weights.items():
        prefix = name[: name.find(".", 4) + 1] if name.startswith("blk.") else ""
        parts.setdefault(prefix, {})[name] = weight
    return parts


class Decoder:
    """`forward(ops, ids, start, kv, rows)`: (T,) token ids -> (rows, V) logits of the last rows."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Weight]) -> None:
        self.config = config
        parts = _by_layer(weights)
        self.blocks = [Block(parts.get(f"blk.{i}.", {}), i, f"blk.{i}.") for i in range(config.n_layers)]
        self.top = Block(parts.get("", {}), -1, "")
        self.output = self.top.get("output.weight") or self.top["token_embd.weight"]  # tied where there is no other
        self.output_norm = "token_embd_norm" if "token_embd_norm.weight" in self.top else "output_norm"  # LFM2's name

    def forward(self, ops: Ops, ids: Any, start: Any, kv: Any, rows: int) -> Array:
        """Append ids at position start to kv and return the logits of the last `rows` tokens (None for 0)."""
        c = self.config
        x = ops.embed(self.top["token_embd.weight"], ids)
        if c.embedding_scale != 1.0:
            x = x * c.embedding_scale
        if "position_embd.weight" in self.top:
            x = x + ops.embed_positions(self.top["position_embd.weight"], start, x.shape[0])
        for layer, block in zip(c.layers, self.blocks, strict=True):
            x = self._block(ops, x, Place(c, layer, block, start, kv))
        return self._logits(ops, x[x.shape[0] - rows :]) if rows else None

    def record(self, n_tokens: int, n_rows: int) -> Program:
        """The same pass as a Program. Weights need a `.shape` only."""
        recorder = Recorder(n_tokens, n_rows)
        recorder.program.result = self.forward(recorder, None, None, None, n_rows)
        return recorder.program

    def unused_tensors(self) -> list[str]:
        """Names in the file that a pass does not read, to be asked after one: each is a part of the model we miss."""
        blocks = (self.top, *self.blocks)
        return [name for block in blocks for name in block.unused() if not name.startswith(READ_WITH_CONFIG)]

    def _logits(self, ops: Ops, x: Array) -> Array:
        c = self.config
        x = self.top.norm(ops, x, self.output_norm, c)
        logits = ops.linear(x, self.output, self.top.get("output.bias"))
        if c.logit_scale != 1.0:
            logits = logits * c.logit_scale
        return ops.softcap(logits, c.logit_softcap) if c.logit_softcap else logits

    def _block(self, ops: Ops, x: Array, at: Place) -> Array:
        c, block = self.config, at.block
        h = block.input_norm(ops, x, "attn_norm", "post_attention_norm", c)
        if not at.layer.mixers:  # a pure feed-forward layer
            return x + self._residual(self._feed_forward(ops, h, at))
        first = block.norm(ops, x, "attn_norm_2", c) if "attn_norm_2.weight" in block else h
        mixed = self._residual(self._mix(ops, first, at))
        if c.parallel_residual:
            h = block.norm(ops, x, "ffn_norm", c) if "ffn_norm.weight" in block else h
            return x + mixed + self._residual(self._feed_forward(ops, h, at))
        x = x + mixed
        if not at.layer.n_ff and not at.layer.moe:
            return x
        h = block.input_norm(ops, x, c.ffn_norm, "post_ffw_norm", c)
        return x + self._residual(self._feed_forward(ops, h, at))

    def _mix(self, ops: Ops, h: Array, at: Place) -> Array:
        out = reduce(add, (MIXERS[name](ops, h, at) for name in at.layer.mixers))
        return self._own_post_norm(ops, out, at.block, "post_attention_norm")

    def _feed_forward(self, ops: Ops, h: Array, at: Place) -> Array:
        out = self._experts(ops, h, at) if at.layer.moe else self._gated(ops, h, at, "")
        return self._own_post_norm(ops, out, at.block, "post_ffw_norm")

    def _gated(self, ops: Ops, h: Array, at: Place, suffix: str) -> Array:
        """down(act(gate h) * up h); `suffix` is `_shexp` for shared experts. Gate and up may be one matrix."""
        block, act = at.block, at.layer.activation
        up = block.linear(ops, h, f"ffn_up{suffix}")
        width = block[f"ffn_down{suffix}.weight"].shape[-1]
        if f"ffn_gate{suffix}.weight" in block:
            inner = ops.glu(block.linear(ops, h, f"ffn_gate{suffix}"), up, act)
        elif up.shape[1] == 2 * width:  # gate first
            inner = ops.glu(up[:, :width], up[:, width:], act)
        else:
            inner = ops.activate(up, act)
        return block.linear(ops, inner, f"ffn_down{suffix}")

    def _experts(self, ops: Ops, h: Array, at: Place) -> Array:
        block = at.block
        assert at.layer.moe is not None
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
        out = ops.moe(h, weights, at.layer.moe, at.layer.activation)
        if "ffn_up_shexp.weight" not in block:
            return out
        shared = self._gated(ops, h, at, "_shexp")
        if "ffn_gate_inp_shexp.weight" in block:  # (T, 1)
            shared = shared * ops.activate(ops.linear(h, block["ffn_gate_inp_shexp.weight"]), "sigmoid")
        return out + shared

    def _residual(self, x: Array) -> Array:
        scale = self.config.residual_scale
        return x if scale == 1.0 else x * scale

    def _own_post_norm(self, ops: Ops, x: Array, block: Block, name: str) -> Array:
        """The norm after a sub-block, unless that name is this model's norm before the feed-forward."""
        return x if name == self.config.ffn_norm else block.norm_if_present(ops, x, name, self.config)


def check_tensors(config: ModelConfig, tensors: Mapping[str, TensorInfo]) -> None:
    """UnsupportedModel where the file holds a tensor that this decoder would leave unread, FormatError where one is
    missing. A model that runs without one of its tensors answers nonsense without a word."""
    decoder = Decoder(config, tensors)
    decoder.record(1, 1)
    unused = decoder.unused_tensors()
    if unused:
        more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise UnsupportedModel(
            f"architecture {config.arch!r}: tensor {unused[0]}{more} would not be used: this variant is not supported",
            "the answers would be wrong; its size can still be checked with `localinfer fit`",
        )
