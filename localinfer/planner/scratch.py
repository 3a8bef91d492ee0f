"""Memory that a forward pass needs beside weights and KV: activations, prepared activations, attention scores.

The decoder's operations are recorded for a whole chunk and laid out (models/program.py), as the cpu backend does: the
activations are exact for the recorded operations, and a bound where a backend fuses some of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from localinfer.models.config import AttentionConfig, LayerConfig, ModelConfig, MoEConfig
from localinfer.models.decoder import Decoder
from localinfer.models.program import Program
from localinfer.planner.attention_scratch import attention_bytes
from localinfer.planner.platforms import PlatformRules
from localinfer.records import dataclass, replace

if TYPE_CHECKING:
    from localinfer.formats.gguf import TensorInfo
    from localinfer.planner.facts import ModelFacts

FLOAT_TYPES = ("F32", "F16", "BF16", "NVFP4")  # multiplied with float32 activations; all others with int16


@dataclass(frozen=True)
class Scratch:
    """Bytes by part. Only attention's part depends on the context."""

    activations: int
    prepared: int
    experts: int
    chunk: int
    threads: int
    attentions: tuple[AttentionConfig, ...]  # the distinct ones
    rules: PlatformRules

    def attention(self, n_ctx: int) -> int:
        """Of the layer that needs most: layers run one after the other in the same room."""
        sizes = (attention_bytes(a, n_ctx, self.chunk, self.threads, self.rules) for a in self.attentions)
        return max(sizes, default=0)


def scratch_for(model: ModelFacts, chunk: int, threads: int, rules: PlatformRules) -> Scratch:
    """Scratch of a prefill in chunks of `chunk` tokens. FormatError where the file lacks a tensor."""
    assert model.config is not None
    if not model.mapped:
        return _scratch_of_mlx_lm(model.config, chunk, threads, rules)
    program = Decoder(*without_repeats(model.config, model.tensors)).record(chunk, 1)
    return Scratch(
        activations=program.layout() + _angle_tables(program),
        prepared=max(_prepared(program), default=0) if rules.prepares_activations else 0,
        experts=max((_gathered(moe, chunk, n_embd, rules) for moe, n_embd in _experts(program)), default=0),
        chunk=chunk,
        threads=threads,
        attentions=tuple(dict.fromkeys(_attentions(program))),
        rules=rules,
    )


def _scratch_of_mlx_lm(config: ModelConfig, chunk: int, threads: int, rules: PlatformRules) -> Scratch:
    """Values that one layer of mlx-lm's holds at a time, float32 at most: the residual stream and its norm, queries,
    keys, values and their rotated copies, the inner values of the feed-forward; a window's cache is written anew."""
    widest = experts = windows = 0
    for layer in config.layers:
        a = layer.attention
        assert a is not None
        heads = 2 * (a.n_heads * (a.d_k + a.d_v) + a.n_kv_heads * (a.d_k + a.d_v))
        widest = max(widest, 4 * config.n_embd + max(heads, 3 * layer.n_ff))
        if a.window:
            windows = max(windows, (a.window + chunk) * a.n_kv_heads * (a.d_k + a.d_v))
        if layer.moe:
            experts = max(experts, _gathered(layer.moe, chunk, config.n_embd, rules))
    attentions = tuple(dict.fromkeys(layer.attention for layer in config.layers if layer.attention))
    return Scratch(4 * (chunk * widest + windows), 0, experts, chunk, threads, attentions, rules)


def without_repeats(
    config: ModelConfig, tensors: Mapping[str, TensorInfo], keep: int = 3
) -> tuple[ModelConfig, dict[str, TensorInfo]]:
    """The same model with runs of more than `keep` equal layers cut to `keep`: its buffers are laid out alike.

    A buffer lives for a layer or two, so a longer run repeats the same places (tests compare both layouts).
    """
    parts: dict[str, dict[str, TensorInfo]] = {}
    for name, info in tensors.items():
        layer, _, rest = name.removeprefix("blk.").partition(".")
        top = not name.startswith("blk.")
        parts.setdefault("" if top else layer, {})[name if top else rest] = info
    kept, run, last = dict(parts.get("", {})), 0, None
    layers: list[LayerConfig] = []
    for i, layer_config in enumerate(config.layers):
        part = parts.get(str(i), {})
        shapes = {name: (info.shape, info.type.name in FLOAT_TYPES) for name, info in part.items()}
        run = run + 1 if (layer_config, shapes) == last else 1
        last = (layer_config, shapes)
        if run <= keep:
            kept |= {f"blk.{len(layers)}.{name}": info for name, info in part.items()}
            layers.append(layer_config)
    return replace(config, layers=tuple(layers), n_layers=len(layers)), kept


def _prepared(program: Program) -> Iterator[int]:
    """Rounded copies of a matrix's input: 32 int16 values and two float32 a block, or float32 as they are."""
    for i in program.instructions:
        if i.op == "linear":
            rows, cols = i.inputs[0].shape
            yield rows * (cols * 4 if i.weights[0].type.name in FLOAT_TYPES else -(-cols // 32) * 72)


def _angle_tables(program: Program) -> int:
    """cos and sin of each distinct rope, float32."""
    ropes = {id(i.params["rope"].inv_freq): i.params["rope"] for i in program.instructions if i.op == "rope"}
    distinct = {(r.n_dims, r.style, r.inv_freq) for r in ropes.values()}
    return sum(program.n_tokens * n_dims * 4 for n_dims, _, _ in distinct)


def _experts(program: Program) -> Iterator[tuple[MoEConfig, int]]:
    for i in program.instructions:
        if i.op == "moe":
            yield i.params["moe"], i.inputs[0].shape[1]


def _gathered(moe: MoEConfig, chunk: int, n_embd: int, rules: PlatformRules) -> int:
    """Router logits, and for every chosen expert of every token its inner values (gate, up) and its output. Where pairs
    are sorted the most of: gate and up beside their input; these beside their product; outputs sorted and put back."""
    pair = 2 * moe.n_ff + n_embd
    if rules.sorts_experts:
        pair = max(pair, 3 * moe.n_ff, 2 * n_embd)
    return chunk * 4 * (moe.n_experts + moe.n_used * pair)


def _attentions(program: Program) -> Iterator[AttentionConfig]:
    for i in program.instructions:
        if i.op == "attention":
            yield i.params["attn"]
