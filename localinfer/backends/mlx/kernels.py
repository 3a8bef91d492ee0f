"""Kernels as text: which files of metal_kernels/ make one, what goes in and out, which block types there are.

A body is written once in a small dialect that Metal, CUDA and a host C++ compiler all take; the dialect itself is
metal_kernels/dialect.metal, cuda_kernels/dialect.cu, and for tests on the host tests/metal_kernels/shim.h. Bodies and
block decoders name no model and no layer. A kernel holds only the decoder it needs: MLX hashes its source at each use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from localinfer.formats.ggml_types import GGMLType


@dataclass(frozen=True)
class BlockGeometry:
    """How a kernel walks rows of a type. `values`: what a row must be a multiple of."""

    name: str  # metal_kernels/blocks/<name>.metal
    values: int
    bytes: int
    parts: int  # units a block; a lane takes one unit at a time
    alignment: int  # that the widest load of a block needs
    with_scales: bool = False  # needs k_scales.metal


BLOCKS: dict[GGMLType, BlockGeometry] = {
    GGMLType.F32: BlockGeometry("f32", 4, 16, 1, 4),
    GGMLType.F16: BlockGeometry("f16", 4, 8, 1, 4),
    GGMLType.BF16: BlockGeometry("bf16", 4, 8, 1, 4),
    GGMLType.Q4_0: BlockGeometry("q4_0", 32, 18, 2, 2),
    GGMLType.Q4_1: BlockGeometry("q4_1", 32, 20, 2, 4),
    GGMLType.Q5_0: BlockGeometry("q5_0", 32, 22, 2, 2),
    GGMLType.Q5_1: BlockGeometry("q5_1", 32, 24, 2, 4),
    GGMLType.Q8_0: BlockGeometry("q8_0", 32, 34, 2, 2),
    GGMLType.Q2_K: BlockGeometry("q2_k", 256, 84, 8, 4),
    GGMLType.Q3_K: BlockGeometry("q3_k", 256, 110, 8, 2),
    GGMLType.Q4_K: BlockGeometry("q4_k", 256, 144, 8, 16, True),
    GGMLType.Q5_K: BlockGeometry("q5_k", 256, 176, 8, 16, True),
    GGMLType.Q6_K: BlockGeometry("q6_k", 256, 210, 8, 2),
    GGMLType.IQ4_NL: BlockGeometry("iq4_nl", 32, 18, 2, 2),
    GGMLType.IQ4_XS: BlockGeometry("iq4_xs", 256, 136, 8, 8),
    GGMLType.MXFP4: BlockGeometry("mxfp4", 32, 17, 2, 1),
}


SMALLEST_ROW = 16  # values; MLX passes arrays of fewer than 8 elements in another address space


def has_kernel(gtype: GGMLType, n_in: int) -> bool:
    """True where rows of n_in values of this type are multiplied from their blocks."""
    return gtype in BLOCKS and n_in % BLOCKS[gtype].values == 0 and n_in >= SMALLEST_ROW


@dataclass(frozen=True)
class Kernel:
    """`header` comes after the dialect; `source` is the body of the kernel function."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    header: str
    source: str


#                 inputs, outputs, what the header holds beside the block decoder
_BODIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "linear": (("w", "x", "bias", "sizes"), ("y",)),
    "linear_experts": (("w", "x", "tiles", "sizes"), ("y",)),
    "decode_rows": (("w", "ids", "sizes"), ("y",)),
    "attend": (("q", "keys", "values", "slopes", "sizes", "reals"), ("sums", "stats")),
    "merge_attention": (("sums", "stats", "sinks", "sizes"), ("y",)),
    "store_q8_0": (("x",), ("y",)),
    "store_q4_0": (("x",), ("y",)),
    "rope": (("x", "cosines", "sines", "sizes"), ("y",)),
    "glu": (("gate", "up", "sizes"), ("y",)),
    "scan": (("x", "step", "decay", "b", "c", "memory", "sizes"), ("y", "after")),
    "delta_rule": (("q", "k", "v", "decay", "rate", "memory", "sizes"), ("y", "after")),
}


@cache
def block_kernel(op: str, gtype: GGMLType) -> Kernel:
    """linear, linear_experts or decode_rows for one type of block."""
    geometry = BLOCKS[gtype]
    parts = [_text("loads"), _block(geometry)]
    if op != "decode_rows":
        parts.append(_text("matvec"))
    return _kernel(op, f"{op}_{geometry.name}", parts)


@cache
def attention_kernel(k_type: GGMLType, v_type: GGMLType) -> Kernel:
    """attend over keys and values of these types (f32, f16, q8_0, q4_0)."""
    k, v = BLOCKS[k_type], BLOCKS[v_type]
    parts = [_text("loads"), _in_namespace("keys_as", k), _in_namespace("values_as", v)]
    return _kernel("attend", f"attend_{k.name}_{v.name}", parts)


@cache
def plain_kernel(op: str) -> Kernel:
    """One that reads no blocks."""
    return _kernel(op, op, [])


def _kernel(op: str, name: str, parts: list[str]) -> Kernel:
    inputs, outputs = _BODIES[op]
    return Kernel(f"li_{name}", inputs, outputs, "\n".join(parts), _text(op))


def _block(geometry: BlockGeometry) -> str:
    scales = _text("blocks/k_scales") if geometry.with_scales else ""
    return scales + _text(f"blocks/{geometry.name}")


def _in_namespace(name: str, geometry: BlockGeometry) -> str:
    return f"namespace {name} {{\n{_block(geometry)}}}\n"


@cache
def _text(name: str) -> str:
    return (files("localinfer.metal_kernels") / f"{name}.metal").read_text("ascii")


@cache
def dialect(target: str) -> str:
    """The dialect for `metal` or `cuda`."""
    if target == "metal":
        return _text("dialect")
    return (files("localinfer.cuda_kernels") / "dialect.cu").read_text("ascii")
