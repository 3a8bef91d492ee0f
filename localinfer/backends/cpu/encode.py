"""Nodes as the C structs of a tape, laid out in an arena.

A tape is recorded for one token more than it will ever see rows of logits, so the two row counts differ and each
buffer and view shows which one it has: T tokens, or the last R rows. At run time both are free.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from localinfer.backends.cpu import structs
from localinfer.backends.cpu.lib import Library
from localinfer.backends.cpu.nodes import (
    Attention,
    Binary,
    Conv,
    Embed,
    EmbedPositions,
    ExpertHint,
    Glu,
    HeadCopy,
    HeadLinear,
    Linear,
    Moe,
    Node,
    NormNode,
    NormSpec,
    OutputSpec,
    Page,
    Rope,
    RopeTable,
    Scan,
    Unary,
)
from localinfer.backends.cpu.weights import CpuWeight
from localinfer.backends.reference.ops import alibi_slopes
from localinfer.models.config import RopeConfig
from localinfer.models.program import Buffer, Program, Value

_NO_VIEW = structs.View()


class Encoder:
    """Structs that point at each other and at weights: `keep` holds whatever must outlive the tape."""

    def __init__(self, lib: Library, program: Program, nodes: list[Node]) -> None:
        self._lib = lib
        self._program = program
        self._nodes = nodes
        self._result = program.result.buffer if program.result is not None else None
        self._last: set[Buffer] = {v.buffer for node in nodes if node.last for v in node.writes()}
        self.keep: list[Any] = []
        self.arena_bytes = self._layout()
        self.attention: list[tuple[int, structs.Attention]] = []  # (layer, its parameters)

    def instructions(self) -> Any:
        """Array of li_instruction."""
        encoded = [self._encode(node) for node in self._nodes]
        array = (structs.Instruction * len(encoded))()
        for slot, node, args in zip(array, self._nodes, encoded, strict=True):
            self.keep.append(args)
            slot.op, slot.args = _op(node), ctypes.addressof(args)
        return array

    def _layout(self) -> int:
        """Lifetimes by node, then Program's layout: fused, other buffers are alive together than when recorded."""
        buffers: dict[Buffer, None] = {}
        for i, node in enumerate(self._nodes):
            for value in node.writes():
                if value.buffer not in buffers:  # a buffer may be written in parts
                    value.buffer.first = i
                    buffers[value.buffer] = None
                value.buffer.last = i
        for i, node in enumerate(self._nodes):
            for value in node.reads():
                value.buffer.last = i
        if self._result is not None:
            buffers.pop(self._result, None)  # written to the caller's array
        for buffer in buffers:
            buffer.rows = self._program.n_rows  # of T, too, no run has more
        plan = Program(self._program.n_tokens, self._program.n_rows)
        plan.buffers = list(buffers)
        plan.instructions = self._nodes  # type: ignore[assignment]  # only their number is looked at
        return plan.layout()

    def _encode(self, node: Node) -> ctypes.Structure:
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def _view(self, value: Value | None, last: bool) -> structs.View:
        if value is None:
            return _NO_VIEW
        buffer = value.buffer
        skip = last and buffer not in self._last
        external = buffer is self._result
        offset = 0 if external else buffer.offset
        return structs.View(offset + value.col * 4, buffer.cols, value.cols, last, skip, external, 0)

    def _norm(self, norm: NormSpec | None) -> structs.Norm:
        if norm is None:
            return structs.Norm()
        w, b = _address(norm.w, norm.n_weights), _address(norm.b, norm.n_weights)
        step = norm.group if norm.n_weights != norm.group else 0
        return structs.Norm(structs.NORM_KINDS[norm.kind], norm.group, norm.eps, step, w, b)

    def _embed(self, node: Embed) -> ctypes.Structure:
        args = structs.EmbedArgs(node.table.table(), node.scale, 0, self._view(node.out, node.last))
        return args

    def _normnode(self, node: NormNode) -> ctypes.Structure:
        x, out = self._view(node.x, node.last), self._view(node.out, node.last)
        return structs.NormArgs(self._norm(node.norm), x, out)

    def _linear(self, node: Linear) -> ctypes.Structure:
        flat = [part for o in node.outputs for part in ((o, o.partner) if o.partner else (o,))]
        kinds: dict[int, int] = {}  # activation kind -> preparation
        types = (ctypes.c_int32 * structs.MAX_PREPARATIONS)()
        for o in flat:
            kind = self._lib.li_activation_kind(int(o.w.type))
            if kind not in kinds:
                types[len(kinds)] = int(o.w.type)
                kinds[kind] = len(kinds)
        outputs = (structs.Output * len(flat))()
        for i, o in enumerate(flat):
            outputs[i] = self._output(o, node.last, kinds[self._lib.li_activation_kind(int(o.w.type))])
        partners = [o.partner for o in node.outputs if o.partner]
        for i, o in enumerate(flat):
            if o in partners:
                outputs[i].y = _NO_VIEW
        self.keep.append(outputs)
        x = self._view(node.x, node.last)
        return structs.LinearArgs(x, self._norm(node.norm), len(flat), len(kinds), types, outputs)

    def _output(self, o: OutputSpec, last: bool, preparation: int) -> structs.Output:
        bias = None if o.bias is None else o.bias.vector(o.w.shape[0]) + o.first_row * 4
        return structs.Output(
            o.w.matrix(o.first_row, o.n_rows), bias, o.scale, o.softcap, _act(o.act), o.partner is not None,
            preparation, 0, self._view(o.y, last), self._view(o.add, last),
        )  # fmt: skip

    def _ropetable(self, node: RopeTable) -> ctypes.Structure:
        n = node.rope.n_dims // 2
        frequencies = (ctypes.c_double * n)(*node.rope.inv_freq)
        self.keep.append(frequencies)
        args = structs.RopeTableArgs(frequencies, n, node.rope.magnitude, self._view(node.out, node.last))
        return args

    def _rotation(self, rope: RopeConfig | None, table: Value | None, head: int) -> structs.Rotation:
        if rope is None:
            return structs.Rotation()
        return structs.Rotation(self._view(table, False), head, rope.n_dims // 2, structs.ROPE_STYLES[rope.style], 0)

    def _rope(self, node: Rope) -> ctypes.Structure:
        rotation = self._rotation(node.rope, node.table, node.x.shape[-1])
        return structs.RopeArgs(rotation, self._view(node.x, node.last), self._view(node.out, node.last))

    def _attention(self, node: Attention) -> ctypes.Structure:
        c = node.config
        sinks = None if node.sinks is None else node.sinks.vector(c.n_heads)
        slopes = self._floats(alibi_slopes(c.n_heads, c.alibi_max_bias)) if c.alibi_max_bias else None
        attention = structs.Attention(c.n_heads, c.chunk, c.scale, c.softcap, sinks, slopes)
        self.attention.append((node.layer, attention))
        views = [self._view(v, False) for v in (node.q, node.k, node.v, node.out)]
        rotation = self._rotation(node.rope, node.table, c.d_k)
        norms = self._norm(node.q_norm), self._norm(node.k_norm)
        return structs.AttentionArgs(*views, *norms, rotation, attention, node.layer, 0)

    def _glu(self, node: Glu) -> ctypes.Structure:
        views = [self._view(v, node.last) for v in (node.gate, node.up, node.out)]
        return structs.GluArgs(*views, _act(node.act), 0)

    def _unary(self, node: Unary) -> ctypes.Structure:
        x, out = self._view(node.x, node.last), self._view(node.out, node.last)
        return structs.UnaryArgs(x, out, structs.UNARY_KINDS[node.kind], _act(node.act), node.factor, node.every)

    def _binary(self, node: Binary) -> ctypes.Structure:
        kind = structs.BINARY_KINDS[node.kind]
        views = [self._view(v, node.last) for v in (node.a, node.b, node.out)]
        return structs.BinaryArgs(*views, kind, 0)

    def _moe(self, node: Moe) -> ctypes.Structure:
        c, w = node.config, node.weights
        n_ff, n_embd = w.up.shape[-2], w.down.shape[-2]
        gate = structs.Matrix() if w.gate is None else w.gate.matrix()
        views = [self._view(v, node.last) for v in (node.x, node.logits, node.out)]
        biases = [
            _address(bias, c.n_experts * n)
            for bias, n in ((w.choice_bias, 1), (w.gate_bias, n_ff), (w.up_bias, n_ff), (w.down_bias, n_embd))
        ]
        return structs.MoeArgs(
            *views, gate, w.up.matrix(), w.down.matrix(), *biases, c.n_experts, c.n_used, structs.GATINGS[c.gating],
            c.normalize, c.n_groups, c.n_groups_used, _act(node.act), c.scale, c.weigh_input, node.paged_layer,
            node.experts,
        )  # fmt: skip

    def _page(self, node: Page) -> ctypes.Structure:
        return structs.PageArgs(node.pager, node.done, node.need)

    def _experthint(self, node: ExpertHint) -> ctypes.Structure:
        c = node.config
        return structs.ExpertHintArgs(
            self._view(node.logits, node.last), node.experts, node.paged_layer, c.n_experts, c.n_used, 0
        )

    def _embedpositions(self, node: EmbedPositions) -> ctypes.Structure:
        return structs.EmbedPositionsArgs(node.table.table(), self._view(node.out, node.last))

    def _headcopy(self, node: HeadCopy) -> ctypes.Structure:
        x, out = self._view(node.x, node.last), self._view(node.out, node.last)
        n_heads, x_head = node.out.shape[1], node.x.shape[2] if node.x.shape[1] == node.out.shape[1] else 0
        return structs.HeadCopyArgs(x, out, n_heads, x_head, node.out.shape[2], node.first, node.out_first, node.n)

    def _headlinear(self, node: HeadLinear) -> ctypes.Structure:
        x, out = self._view(node.x, node.last), self._view(node.out, node.last)
        return structs.HeadLinearArgs(x, out, node.w.matrix(), node.x.shape[1], 0)

    def _conv(self, node: Conv) -> ctypes.Structure:
        x, out = self._view(node.x, node.last), self._view(node.out, node.last)
        taps = node.w.transposed.ctypes.data
        return structs.ConvArgs(x, out, taps, _address(node.bias, node.x.cols), node.state.conv_kernel, node.layer)

    def _scan(self, node: Scan) -> ctypes.Structure:
        s, w = node.state, node.weights
        views = [self._view(v, node.last) for v in (node.x, node.dt, node.b, node.c, node.beta, node.out)]
        vectors = _address(w.a, w.a.n_values), _address(w.dt_bias, s.n_heads), _address(w.d, s.n_heads)
        return structs.ScanArgs(
            *views, *vectors, s.n_heads, s.d_head, s.d_state, s.n_groups, s.tiled_groups, w.a.n_values // s.n_heads,
            node.layer, node.eps, s.conv_values,
        )  # fmt: skip

    def _floats(self, values: np.ndarray | Iterable[float]) -> int:
        array = np.ascontiguousarray(values, np.float32)
        self.keep.append(array)
        return array.ctypes.data


def _act(act: str | None) -> int:
    return structs.ACTIVATIONS[act] if act else 0


def _address(w: CpuWeight | None, n: int) -> int | None:
    """Of n float32 values; None (NULL) where there is no such tensor."""
    return None if w is None else w.vector(n)


def _op(node: Node) -> int:
    if isinstance(node, Scan):
        return structs.OPS["scan" if node.beta is None else "delta"]
    return structs.OPS[_OP_NAMES[type(node)]]


_OP_NAMES: dict[type[Node], str] = {
    Embed: "embed",
    NormNode: "norm",
    Linear: "linear",
    RopeTable: "rope_table",
    Rope: "rope",
    Attention: "attention",
    Glu: "glu",
    Unary: "unary",
    Binary: "binary",
    Moe: "moe",
    EmbedPositions: "embed_positions",
    HeadCopy: "head_copy",
    HeadLinear: "head_linear",
    Conv: "conv",
    Page: "page",
    ExpertHint: "expert_hint",
}
