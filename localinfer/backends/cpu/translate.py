"""A recorded Program as nodes, one to one: the unfused form, which is also the reference for the fused one.

Shapes are checked here, because the kernels trust them: a tensor that does not fit its place is a FormatError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from localinfer.backends.cpu.nodes import (
    Attention,
    Binary,
    Embed,
    Glu,
    Linear,
    Moe,
    Node,
    NormNode,
    NormSpec,
    OutputSpec,
    Rope,
    RopeTable,
    Unary,
)
from localinfer.backends.cpu.weights import CpuWeight
from localinfer.errors import FormatError, UnsupportedModel
from localinfer.models.config import RopeConfig
from localinfer.models.program import Buffer, Instruction, Program, Value


class Translator:
    """Turns instructions into nodes; rope tables are made once per RopeConfig and come first."""

    def __init__(self, program: Program, supported: Callable[[int], bool]) -> None:
        self._program = program
        self._supported = supported
        self._tables: dict[RopeConfig, RopeTable] = {}
        self._embedding_rows = 0

    def nodes(self) -> list[Node]:
        nodes = [node for i in self._program.instructions for node in self._translate(i)]
        tables: list[Node] = list(self._tables.values())
        for node in nodes:
            node.last = all(v.shape[0] == self._program.n_rows for v in node.writes())
        return tables + nodes

    def _translate(self, i: Instruction) -> Sequence[Node]:
        return getattr(self, f"_{i.op}")(i, *i.inputs, *i.weights, **i.params)

    def _buffer(self, rows: int, cols: int) -> Value:
        return Value(self._program, Buffer(rows, cols, 0, 0), (rows, cols))

    def _matrix(self, w: CpuWeight, *shape: int) -> CpuWeight:
        if tuple(w.shape) != shape:
            raise FormatError(f"tensor {w.name}: shape {list(shape)} expected, found {list(w.shape)}")
        if not self._supported(int(w.type)):
            raise UnsupportedModel(f"tensor {w.name}: the cpu backend has no kernel for type {w.type.name}")
        return w

    def _embed(self, i: Instruction, w: CpuWeight) -> Sequence[Node]:
        if len(w.shape) != 2:
            raise FormatError(f"tensor {w.name}: a matrix expected, found shape {list(w.shape)}")
        return [Embed(self._matrix(w, *w.shape), i.out)]

    def _linear(self, i: Instruction, x: Value, w: CpuWeight, bias: CpuWeight | None) -> Sequence[Node]:
        if len(w.shape) != 2:
            raise FormatError(f"tensor {w.name}: a matrix expected, found shape {list(w.shape)}")
        if bias is not None:
            bias.vector(w.shape[0])
        return [Linear(x, [OutputSpec(self._matrix(w, w.shape[0], x.cols), i.out, bias)])]

    def _rms_norm(self, i: Instruction, x: Value, w: CpuWeight | None, eps: float) -> Sequence[Node]:
        return [NormNode(NormSpec("rms", x.shape[-1], eps, _vector(w, x.shape[-1])), x, i.out)]

    def _layer_norm(
        self, i: Instruction, x: Value, w: CpuWeight | None, bias: CpuWeight | None, eps: float
    ) -> Sequence[Node]:
        n = x.shape[-1]
        return [NormNode(NormSpec("layer", n, eps, _vector(w, n), _vector(bias, n)), x, i.out)]

    def _rope(self, i: Instruction, x: Value, rope: RopeConfig) -> Sequence[Node]:
        return [Rope(rope, self._table(rope), x, i.out)]

    def _table(self, rope: RopeConfig) -> Value:
        if rope not in self._tables:
            self._tables[rope] = RopeTable(rope, self._buffer(self._program.n_tokens, rope.n_dims))
        return self._tables[rope].out

    def _attention(
        self, i: Instruction, q: Value, k: Value, v: Value, sinks: CpuWeight | None, layer: int, attn: Any
    ) -> Sequence[Node]:
        sizes = (attn.n_heads * attn.d_k, attn.n_kv_heads * attn.d_k, attn.n_kv_heads * attn.d_v)
        for name, value, n in zip("qkv", (q, k, v), sizes, strict=True):
            if value.cols != n:
                raise FormatError(f"layer {layer}: {name} of {n} values expected, found {value.cols}")
        return [Attention(q, k, v, i.out, layer, attn, _vector(sinks, attn.n_heads))]

    def _glu(self, i: Instruction, gate: Value, up: Value, act: Any) -> Sequence[Node]:
        if gate.cols != up.cols:
            raise FormatError(f"gate and up of one width expected, found {gate.cols} and {up.cols}")
        return [Glu(gate, up, i.out, act)]

    def _activate(self, i: Instruction, x: Value, act: Any) -> Sequence[Node]:
        return [Unary("activate", x, i.out, act=act)]

    def _scale(self, i: Instruction, x: Value, factor: float) -> Sequence[Node]:
        return [Unary("scale", x, i.out, factor=factor)]

    def _softcap(self, i: Instruction, x: Value, cap: float) -> Sequence[Node]:
        return [Unary("softcap", x, i.out, factor=cap)]

    def _add(self, i: Instruction, a: Value, b: Value) -> Sequence[Node]:
        return [_binary("add", i, a, b)]

    def _mul(self, i: Instruction, a: Value, b: Value) -> Sequence[Node]:
        return [_binary("mul", i, a, b)]

    def _moe(
        self,
        i: Instruction,
        x: Value,
        router: CpuWeight,
        gate: CpuWeight | None,
        up: CpuWeight,
        down: CpuWeight,
        bias: CpuWeight | None,
        moe: Any,
        act: Any,
    ) -> Sequence[Node]:
        n, e, f = moe.n_experts, x.cols, up.shape[-2] if len(up.shape) == 3 else 0
        logits = self._buffer(x.shape[0], n)
        for w in (gate, up):
            if w is not None:
                self._matrix(w, n, f, e)
        self._matrix(down, n, e, f)
        return [
            Linear(x, [OutputSpec(self._matrix(router, n, e), logits)]),
            Moe(x, logits, i.out, gate, up, down, _vector(bias, n), moe, act),
        ]


def _vector(w: CpuWeight | None, n: int) -> CpuWeight | None:
    """w after a check of its length."""
    if w is not None:
        w.vector(n)
    return w


def _binary(kind: str, i: Instruction, a: Value, b: Value) -> Binary:
    if a.cols != b.cols or a.shape[0] != b.shape[0]:
        raise FormatError(f"{kind}: operands of one shape expected, found {list(a.shape)} and {list(b.shape)}")
    return Binary(kind, a, b, i.out)
