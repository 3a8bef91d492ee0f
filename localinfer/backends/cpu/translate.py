"""A recorded Program as nodes, one to one: the unfused form, which is also the reference for the fused one.

Shapes are checked here, because the kernels trust them: a tensor that does not fit its place is a FormatError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from localinfer.backends.cpu.nodes import (
    Attention,
    Binary,
    Conv,
    Embed,
    EmbedPositions,
    Glu,
    HeadCopy,
    HeadLinear,
    Linear,
    Moe,
    Node,
    NormNode,
    NormSpec,
    OutputSpec,
    Rope,
    RopeTable,
    Scan,
    Unary,
)
from localinfer.backends.cpu.weights import CpuWeight
from localinfer.errors import FormatError, UnsupportedModel
from localinfer.models.config import RopeConfig, StateConfig
from localinfer.models.ops import MoEWeights, ScanWeights
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

    def _embed_positions(self, i: Instruction, w: CpuWeight) -> Sequence[Node]:
        if len(w.shape) != 2:
            raise FormatError(f"tensor {w.name}: a matrix expected, found shape {list(w.shape)}")
        return [EmbedPositions(self._matrix(w, *w.shape), i.out)]

    def _linear(self, i: Instruction, x: Value, w: CpuWeight, bias: CpuWeight | None) -> Sequence[Node]:
        if len(w.shape) > 2:
            raise FormatError(f"tensor {w.name}: a matrix expected, found shape {list(w.shape)}")
        n_out = w.shape[0] if len(w.shape) == 2 else 1  # one row may be stored as a vector
        shape = (n_out, x.cols) if len(w.shape) == 2 else (x.cols,)
        return [Linear(x, [OutputSpec(self._matrix(w, *shape), i.out, _vector(bias, n_out))])]

    def _rms_norm(self, i: Instruction, x: Value, w: CpuWeight | None, eps: float) -> Sequence[Node]:
        return [NormNode(_norm("rms", x, w, None, eps), x, i.out)]

    def _layer_norm(
        self, i: Instruction, x: Value, w: CpuWeight | None, bias: CpuWeight | None, eps: float
    ) -> Sequence[Node]:
        return [NormNode(_norm("layer", x, w, bias, eps), x, i.out)]

    def _rope(self, i: Instruction, x: Value, rope: RopeConfig) -> Sequence[Node]:
        return [Rope(rope, self._table(rope), x, i.out)]

    def _table(self, rope: RopeConfig) -> Value:
        if rope not in self._tables:
            self._tables[rope] = RopeTable(rope, self._buffer(self._program.n_tokens, rope.n_dims))
        return self._tables[rope].out

    def _attention(self, i: Instruction, q: Value, k: Value, *rest: Any, layer: int, attn: Any) -> Sequence[Node]:
        v, sinks = rest if len(rest) == 2 else (None, *rest)
        sizes = (attn.n_heads * attn.d_k, attn.n_kv_heads * attn.d_k, attn.n_kv_heads * attn.d_v)
        for name, value, n in zip("qkv", (q, k, v), sizes, strict=True):
            if value is not None and value.cols != n:
                raise FormatError(f"layer {layer}: {name} of {n} values expected, found {value.cols}")
        if v is None:  # the values are the first numbers of the keys
            if attn.n_kv_heads != 1:
                raise UnsupportedModel(f"layer {layer}: values inside keys with {attn.n_kv_heads} key heads")
            v = Value(k.program, k.buffer, (k.shape[0], 1, attn.d_v), k.row, k.col)
        return [Attention(q, k, v, i.out, layer, attn, _vector(sinks, attn.n_heads))]

    def _glu(self, i: Instruction, gate: Value, up: Value, act: Any) -> Sequence[Node]:
        if gate.cols != up.cols:
            raise FormatError(f"gate and up of one width expected, found {gate.cols} and {up.cols}")
        return [Glu(gate, up, i.out, act)]

    def _activate(self, i: Instruction, x: Value, act: Any) -> Sequence[Node]:
        return [Unary("activate", x, i.out, act=act)]

    def _scale(self, i: Instruction, x: Value, factor: float) -> Sequence[Node]:
        return [Unary("scale", x, i.out, factor=factor)]

    def _position_scale(self, i: Instruction, x: Value, every: int, scale: float) -> Sequence[Node]:
        return [Unary("position_scale", x, i.out, factor=scale, every=every)]

    def _softcap(self, i: Instruction, x: Value, cap: float) -> Sequence[Node]:
        return [Unary("softcap", x, i.out, factor=cap)]

    def _add(self, i: Instruction, a: Value, b: Value) -> Sequence[Node]:
        return [_binary("add", i, a, b)]

    def _mul(self, i: Instruction, a: Value, b: Value) -> Sequence[Node]:
        return [_binary("mul", i, a, b)]

    def _moe(self, i: Instruction, x: Value, w: MoEWeights, moe: Any, act: Any) -> Sequence[Node]:
        n, e, f = moe.n_experts, x.cols, w.up.shape[-2] if len(w.up.shape) == 3 else 0
        logits = self._buffer(x.shape[0], n)
        for matrix in (w.gate, w.up):
            if matrix is not None:
                self._matrix(matrix, n, f, e)
        self._matrix(w.down, n, e, f)
        biases = ((w.choice_bias, n), (w.gate_bias, n * f), (w.up_bias, n * f), (w.down_bias, n * e))
        for bias, n_values in biases:
            _vector(bias, n_values)
        router = OutputSpec(self._matrix(w.router, n, e), logits, _vector(w.router_bias, n))
        return [Linear(x, [router]), Moe(x, logits, i.out, w, moe, act)]

    def _head_slice(self, i: Instruction, x: Value, first: int, end: int) -> Sequence[Node]:
        return [HeadCopy(x, i.out, first, 0, end - first)]

    def _head_concat(self, i: Instruction, a: Value, b: Value) -> Sequence[Node]:
        n_a, n_b = a.shape[2], b.shape[2]
        return [HeadCopy(a, i.out, 0, 0, n_a), HeadCopy(b, i.out, 0, n_a, n_b)]

    def _head_linear(self, i: Instruction, x: Value, w: CpuWeight) -> Sequence[Node]:
        return [HeadLinear(x, self._matrix(w, x.shape[1], i.out.shape[2], x.shape[2]), i.out)]

    def _causal_conv(
        self, i: Instruction, x: Value, w: CpuWeight, bias: CpuWeight | None, layer: int, state: StateConfig
    ) -> Sequence[Node]:
        if x.cols != state.conv_channels or tuple(w.shape) != (state.conv_channels, state.conv_kernel):
            shape = [state.conv_channels, state.conv_kernel]
            raise FormatError(f"tensor {w.name}: shape {shape} expected for {x.cols} channels, found {list(w.shape)}")
        return [Conv(x, i.out, w, _vector(bias, x.cols), layer, state)]

    def _scan(
        self, i: Instruction, x: Value, dt: Value, b: Value, c: Value, w: ScanWeights, layer: int, state: StateConfig
    ) -> Sequence[Node]:
        n = state.n_heads
        if w.a.n_values not in (n, n * state.d_state):
            raise FormatError(f"tensor {w.a.name}: {n} or {n * state.d_state} values expected, found {w.a.n_values}")
        _vector(w.dt_bias, n), _vector(w.d, n)
        _check_scan(state, x, dt, b, c)
        return [Scan(x, dt, b, c, i.out, w, layer, state)]

    def _delta_rule(
        self, i: Instruction, q: Value, k: Value, v: Value, alpha: Value, beta: Value, w: ScanWeights,
        layer: int, state: StateConfig, eps: float,
    ) -> Sequence[Node]:  # fmt: skip
        _vector(w.a, state.n_heads), _vector(w.dt_bias, state.n_heads)
        _check_scan(state, v, alpha, k, q)
        return [Scan(v, alpha, k, q, i.out, w, layer, state, beta, eps)]


def _check_scan(s: StateConfig, x: Value, dt: Value, b: Value, c: Value) -> None:
    expected = (s.n_heads * s.d_head, s.n_heads, s.n_groups * s.d_state, s.n_groups * s.d_state)
    found = (x.cols, dt.cols, b.cols, c.cols)
    if found != expected or s.n_heads % s.n_groups:
        raise FormatError(f"recurrent layer: inputs of {list(expected)} values expected, found {list(found)}")


def _norm(kind: str, x: Value, w: CpuWeight | None, bias: CpuWeight | None, eps: float) -> NormSpec:
    """Over the last axis; a weight is as long as that axis, or as the whole row (each head its own)."""
    n_weights = x.cols if w is not None and w.n_values == x.cols else x.shape[-1]
    return NormSpec(kind, x.shape[-1], eps, _vector(w, n_weights), _vector(bias, n_weights), n_weights)


def _vector(w: CpuWeight | None, n: int) -> CpuWeight | None:
    """w after a check of its length."""
    if w is not None:
        w.vector(n)
    return w


def _binary(kind: str, i: Instruction, a: Value, b: Value) -> Binary:
    if kind == "mul" and a.cols == 1:
        a, b = b, a
    one_column = kind == "mul" and b.cols == 1
    if (a.cols != b.cols and not one_column) or a.shape[0] != b.shape[0]:
        raise FormatError(f"{kind}: operands of one shape expected, found {list(a.shape)} and {list(b.shape)}")
    return Binary(kind, a, b, i.out)
