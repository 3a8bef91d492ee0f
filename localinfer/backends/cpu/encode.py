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
from localinfer.backends.reference.ops import alibi_slopes
from localinfer.models.config import RopeConfig
from localinfer.models.program import Buffer, Program, Value

_NO_VIEW = structs.View()
_NORM_KINDS = {"rms": structs.NORM_RMS, "layer": structs.NORM_LAYER}


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
        for slot, (op, args) in zip(array, encoded, strict=True):
            self.keep.append(args)
            slot.op, slot.args = op, ctypes.addressof(args)
        return array

    def _layout(self) -> int:
        """Lifetimes by node, then Program's layout: fused, other buffers are alive together than when recorded."""
        buffers: dict[Buffer, None] = {}
        for i, node in enumerate(self._nodes):
            for value in node.writes():
                value.buffer.first = value.buffer.last = i
                buffers[value.buffer] = None
        for i, node in enumerate(self._nodes):
            for value in node.reads():
                value.buffer.last = i
        buffers.pop(self._result, None)  # type: ignore[call-overload]  # written to the caller's array
        for buffer in buffers:
            buffer.rows = self._program.n_rows  # of T, too, no run has more
        plan = Program(self._program.n_tokens, self._program.n_rows)
        plan.buffers = list(buffers)
        plan.instructions = self._nodes  # type: ignore[assignment]  # only their number is looked at
        return plan.layout()

    def _encode(self, node: Node) -> tuple[int, ctypes.Structure]:
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
        w, b = (v.vector(norm.group) if v is not None else None for v in (norm.w, norm.b))
        return structs.Norm(_NORM_KINDS[norm.kind], norm.group, norm.eps, 0, w, b)

    def _embed(self, node: Embed) -> tuple[int, ctypes.Structure]:
        args = structs.EmbedArgs(node.table.matrix(), node.scale, 0, self._view(node.out, node.last))
        return structs.OP_EMBED, args

    def _normnode(self, node: NormNode) -> tuple[int, ctypes.Structure]:
        x, out = self._view(node.x, node.last), self._view(node.out, node.last)
        return structs.OP_NORM, structs.NormArgs(self._norm(node.norm), x, out)

    def _linear(self, node: Linear) -> tuple[int, ctypes.Structure]:
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
        return structs.OP_LINEAR, structs.LinearArgs(x, self._norm(node.norm), len(flat), len(kinds), types, outputs)

    def _output(self, o: OutputSpec, last: bool, preparation: int) -> structs.Output:
        bias = None if o.bias is None else o.bias.vector(o.w.shape[0]) + o.first_row * 4
        return structs.Output(
            o.w.matrix(o.first_row, o.n_rows), bias, o.scale, o.softcap, _act(o.act), o.partner is not None,
            preparation, 0, self._view(o.y, last), self._view(o.add, last),
        )  # fmt: skip

    def _ropetable(self, node: RopeTable) -> tuple[int, ctypes.Structure]:
        n = node.rope.n_dims // 2
        frequencies = (ctypes.c_double * n)(*node.rope.inv_freq)
        self.keep.append(frequencies)
        args = structs.RopeTableArgs(frequencies, n, node.rope.magnitude, self._view(node.out, node.last))
        return structs.OP_ROPE_TABLE, args

    def _rotation(self, rope: RopeConfig | None, table: Value | None, head: int) -> structs.Rotation:
        if rope is None:
            return structs.Rotation()
        return structs.Rotation(self._view(table, False), head, rope.n_dims // 2, structs.ROPE_STYLES[rope.style], 0)

    def _rope(self, node: Rope) -> tuple[int, ctypes.Structure]:
        rotation = self._rotation(node.rope, node.table, node.x.shape[-1])
        return structs.OP_ROPE, structs.RopeArgs(rotation, self._view(node.x, node.last), self._view(node.out, node.last))

    def _attention(self, node: Attention) -> tuple[int, ctypes.Structure]:
        c = node.config
        sinks = None if node.sinks is None else node.sinks.vector(c.n_heads)
        slopes = self._floats(alibi_slopes(c.n_heads, c.alibi_max_bias)) if c.alibi_max_bias else None
        attention = structs.Attention(c.n_heads, c.chunk, c.scale, c.softcap, sinks, slopes)
        self.attention.append((node.layer, attention))
        views = [self._view(v, False) for v in (node.q, node.k, node.v, node.out)]
        rotation = self._rotation(node.rope, node.table, c.d_k)
        norms = self._norm(node.q_norm), self._norm(node.k_norm)
        return structs.OP_ATTENTION, structs.AttentionArgs(*views, *norms, rotation, attention, node.layer, 0)

    def _glu(self, node: Glu) -> tuple[int, ctypes.Structure]:
        views = [self._view(v, node.last) for v in (node.gate, node.up, node.out)]
        return structs.OP_GLU, structs.GluArgs(*views, _act(node.act), 0)

    def _unary(self, node: Unary) -> tuple[int, ctypes.Structure]:
        kinds = {"activate": structs.UNARY_ACTIVATE, "scale": structs.UNARY_SCALE, "softcap": structs.UNARY_SOFTCAP}
        x, out = self._view(node.x, node.last), self._view(node.out, node.last)
        return structs.OP_UNARY, structs.UnaryArgs(x, out, kinds[node.kind], _act(node.act), node.factor, 0)

    def _binary(self, node: Binary) -> tuple[int, ctypes.Structure]:
        kind = structs.BINARY_ADD if node.kind == "add" else structs.BINARY_MUL
        views = [self._view(v, node.last) for v in (node.a, node.b, node.out)]
        return structs.OP_BINARY, structs.BinaryArgs(*views, kind, 0)

    def _moe(self, node: Moe) -> tuple[int, ctypes.Structure]:
        c = node.config
        gate = structs.Matrix() if node.gate is None else node.gate.matrix()
        bias = None if node.bias is None else node.bias.vector(c.n_experts)
        views = [self._view(v, node.last) for v in (node.x, node.logits, node.out)]
        return structs.OP_MOE, structs.MoeArgs(
            *views, gate, node.up.matrix(), node.down.matrix(), bias, c.n_experts, c.n_used,
            structs.GATINGS[c.gating], c.normalize, c.n_groups, c.n_groups_used, _act(node.act), c.scale,
        )  # fmt: skip

    def _floats(self, values: np.ndarray | Iterable[float]) -> int:
        array = np.ascontiguousarray(values, np.float32)
        self.keep.append(array)
        return array.ctypes.data


def _act(act: str | None) -> int:
    return structs.ACTIVATIONS[act] if act else 0
