"""The builds of each kernel that the backend asks for, with the types of its arrays: for compilers to look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from localinfer.backends.mlx.gpu_attention import SPLIT, attend_shape
from localinfer.backends.mlx.gpu_linear import matvec_shape
from localinfer.backends.mlx.kernels import BLOCKS, Kernel, attention_kernel, block_kernel, plain_kernel
from localinfer.formats.ggml_types import GGMLType

FLOATS = "float32"


@dataclass(frozen=True)
class Case:
    label: str
    kernel: Kernel
    types: dict[str, str]  # of inputs and outputs, numpy names
    template: tuple[tuple[str, Any], ...]


def block_cases(target: str, widths: tuple[int, ...] = (1, 4, 16)) -> Iterator[Case]:
    """Matrix kernels of every type with kernels."""
    for gtype in BLOCKS:
        types = {"w": "uint32", "x": FLOATS, "bias": FLOATS, "sizes": "int32", "y": FLOATS}
        for width in widths:
            s = matvec_shape(gtype, width, target)
            template = (("ROWS", s.rows), ("NX", s.width), ("GROUPS", s.groups), ("BIAS", 1))
            yield Case(f"linear {gtype.name} x{width}", block_kernel("linear", gtype), types, template)
        types = {"w": "uint32", "x": FLOATS, "tiles": "int32", "sizes": "int32", "y": FLOATS}
        for width in (1, 16):
            s = matvec_shape(gtype, width, target)
            template = (("ROWS", s.rows), ("NX", s.width), ("GROUPS", s.groups))
            yield Case(f"experts {gtype.name} x{width}", block_kernel("linear_experts", gtype), types, template)
        types = {"w": "uint32", "ids": "int32", "sizes": "int32", "y": "float16"}
        rows = block_kernel("decode_rows", gtype)
        yield Case(f"rows {gtype.name}", rows, types, (("T", "float16"), ("GATHER", 0)))


def other_cases() -> Iterator[Case]:
    for name, d, n_rows in (("Q8_0", 128, 4), ("Q4_0", 128, 4), ("F16", 256, 4), ("Q8_0", 256, 8), ("F16", 64, 1)):
        vec, rows = attend_shape(d, n_rows)
        stored = "float16" if name == "F16" else "uint16"
        template = (
            ("ROWS", rows), ("DK", d), ("DV", d), ("VEC", vec), ("SPLIT", SPLIT), ("V_IN_K", 0),
            ("SOFTCAP", 1), ("ALIBI", 1),
        )  # fmt: skip
        types = dict.fromkeys(("q", "slopes", "reals", "sums", "stats"), FLOATS)
        types |= {"keys": stored, "values": stored, "sizes": "int32"}
        yield Case(f"attend {name} d{d} x{rows}", attention_kernel(GGMLType[name], GGMLType[name]), types, template)
    plain: list[tuple[str, tuple[tuple[str, Any], ...]]] = [
        ("merge_attention", (("DV", 128), ("SINKS", 1))), ("store_q8_0", ()), ("store_q4_0", ()), ("rope", ()),
        ("glu", (("ACT", 1),)), ("scan", (("COLUMNS", 4),)), ("delta_rule", (("COLUMNS", 4),)),
    ]  # fmt: skip
    for op, template in plain:
        kernel = plain_kernel(op)
        types = {n: "int32" if n == "sizes" else FLOATS for n in (*kernel.inputs, *kernel.outputs)}
        if op.startswith("store"):
            types["y"] = "uint8"
        yield Case(op, kernel, types, template)
