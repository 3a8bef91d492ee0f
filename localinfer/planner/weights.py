"""What the weights take and which of them a token touches, from the tensor table alone.

A token reads every matrix once, except: of an untied embedding it reads one row (not counted), and of a layer's
experts it reads only the chosen ones. A tied embedding is the output matrix too: held once, read whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from localinfer.records import dataclass

if TYPE_CHECKING:
    from localinfer.formats.gguf import TensorInfo

EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
GROUPS = ("embedding", "attention", "feed-forward", "experts", "output", "other")


@cache
def group_of(name: str) -> str:
    """Which part of the model a tensor belongs to, by its GGUF name."""
    if name.startswith(("token_embd", "per_layer_token_embd", "position_embd")):
        return "embedding"
    if name.startswith("output."):
        return "output"
    part = name.split(".")[2] if name.startswith("blk.") and name.count(".") >= 2 else ""
    if part.endswith("norm"):
        return "other"
    if part.endswith("_exps"):
        return "experts"
    if part.startswith(("attn_", "ssm_", "shortconv", "time_mix")):
        return "attention"
    if part.startswith(("ffn_", "channel_mix")):
        return "feed-forward"
    return "other"


def weight_groups(tensors: Mapping[str, TensorInfo]) -> dict[str, int]:
    """Bytes of tensor data by group, largest groups as they come; groups without a tensor are left out."""
    totals = dict.fromkeys(GROUPS, 0)
    for info in tensors.values():
        totals[group_of(info.name)] += info.n_bytes
    return {group: n for group, n in totals.items() if n}


@dataclass(frozen=True)
class Touched:
    """What one token reads, and what it multiplies by."""

    read_bytes: int
    matmul_values: int  # matrix values that a token in the middle of a prompt is multiplied by (no output matrix)
    output_values: int  # further values where logits are wanted
    routed_bytes: int = 0  # of read_bytes, how many depend on the router


def touched_weights(tensors: Mapping[str, TensorInfo], n_experts: int = 0, n_used: int = 0) -> Touched:
    """Bytes and matrix values that a token touches; n_used of n_experts experts are read in each layer."""
    read = matmul = output = routed = 0
    output_name = OUTPUT if OUTPUT in tensors else EMBEDDING
    for name, info in tensors.items():
        group = group_of(name)
        if group == "embedding" and name != output_name:
            continue
        used, of = (n_used, n_experts) if group == "experts" and n_experts else (1, 1)
        n_bytes = info.n_bytes * used // of
        read += n_bytes
        routed += n_bytes if group == "experts" else 0
        values = prod(info.shape) * used // of if len(info.shape) > 1 else 0
        if name == output_name:
            output += values
        else:
            matmul += values
    return Touched(read, matmul, output, routed)


def total_values(tensors: Mapping[str, TensorInfo]) -> int:
    """Parameters in the file."""
    return sum(prod(info.shape) for info in tensors.values())


def dominant_type(tensors: Mapping[str, TensorInfo]) -> str:
    """The tensor type that most bytes are in: `Q4_K`. Empty for a file without tensors."""
    totals: dict[str, int] = {}
    for info in tensors.values():
        totals[info.type.name] = totals.get(info.type.name, 0) + info.n_bytes
    return max(totals, key=lambda t: totals[t], default="")


def weights_bytes(params: float, bits: float) -> float:
    """Bytes of `params` weights at `bits` a weight, scales included in the bits."""
    return params * bits / 8


def decoder_values(
    *, vocab: int, hidden: int, layers: int, heads: int, kv_heads: int, head_dim: int, ffn: int,
    tied: bool, qk_norm: bool,
) -> int:  # fmt: skip
    """Parameters of a plain gated decoder from its sizes: the sum over its tensor table."""
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    norms = 2 * hidden + (2 * head_dim if qk_norm else 0)
    return layers * (attention + 3 * hidden * ffn + norms) + vocab * hidden * (1 if tied else 2) + hidden


@dataclass(frozen=True)
class BlockSplit:
    """Where the bytes of a quantized file are: the values' codes (and unquantized tensors), and the scales."""

    payload_bytes: int
    codes_and_floats: int
    scales: int


# Bytes of a block that hold codes; the rest are scales and minimums. Layouts: the block_* structs of ggml-common.h.
_CODE_BYTES = {
    "Q4_0": 16, "Q4_1": 16, "Q5_0": 20, "Q5_1": 20, "Q8_0": 32, "MXFP4": 16,
    "Q2_K": 64, "Q3_K": 96, "Q4_K": 128, "Q5_K": 160, "Q6_K": 192,
}  # fmt: skip


def block_split(tensors: Iterable[TensorInfo]) -> BlockSplit:
    """Split tensor data into codes and scales; types without a known split count as codes."""
    payload = codes = 0
    for info in tensors:
        payload += info.n_bytes
        n_blocks = info.n_bytes // info.type.block_bytes
        codes += n_blocks * _CODE_BYTES.get(info.type.name, info.type.block_bytes)
    return BlockSplit(payload, codes, payload - codes)


def lora_bytes(rank: int, layers: int, shapes: Iterable[tuple[int, int]], value_bytes: int = 2) -> int:
    """A low-rank adapter: rank * (in + out) values for each adapted matrix of each layer."""
    return rank * layers * value_bytes * sum(a + b for a, b in shapes)
