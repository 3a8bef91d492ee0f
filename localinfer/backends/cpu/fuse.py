"""Fewer, larger instructions with the same bits: each pass removes a wait of all threads or a trip through memory.

Every fusion does the very operations of the unfused form in the same order on each value, so results do not change
(tests/backends/cpu/test_fuse.py compares bits). A pass is skipped wherever something else reads the value in between.
"""

from __future__ import annotations

from collections import defaultdict

from localinfer.backends.cpu.nodes import (
    Attention,
    Binary,
    Embed,
    Glu,
    Linear,
    Node,
    NormNode,
    NormSpec,
    OutputSpec,
    Rope,
    Unary,
)
from localinfer.models.program import Buffer, Value
from localinfer.records import replace


def fuse(nodes: list[Node], result: Value | None) -> list[Node]:
    for fusion in (_embedding_scale, _glu, _epilogues, _shared_inputs, _norms, _attention_heads):
        nodes = fusion(_Graph(nodes, result))
    return nodes


class _Graph:
    """Nodes with lookups: who writes a buffer, who reads it. `gone` nodes are left out of the result."""

    def __init__(self, nodes: list[Node], result: Value | None) -> None:
        self.nodes = nodes
        self.result = result
        self.index = {id(node): i for i, node in enumerate(nodes)}
        self.writer: dict[Buffer, Node] = {}
        self.readers: dict[Buffer, list[Node]] = defaultdict(list)
        for node in nodes:
            for value in node.writes():
                self.writer[value.buffer] = node
            for value in node.reads():
                self.readers[value.buffer].append(node)
        self.gone: set[int] = set()

    def sole_reader(self, value: Value) -> Node | None:
        """The only reader of all of the value's buffer, if there is one."""
        readers = self.readers[value.buffer]
        is_result = self.result is not None and value.buffer is self.result.buffer
        return readers[0] if len(readers) == 1 and not is_result else None

    def before(self, value: Value, node: Node) -> bool:
        """Is the value known when node runs?"""
        writer = self.writer.get(value.buffer)
        return writer is None or self.index[id(writer)] < self.index[id(node)]

    def remove(self, node: Node) -> None:
        self.gone.add(id(node))

    def rest(self) -> list[Node]:
        return [node for node in self.nodes if id(node) not in self.gone]


def _whole(value: Value) -> bool:
    """A view of all rows and columns of its buffer."""
    b = value.buffer
    return value.row == 0 and value.col == 0 and value.shape[0] == b.rows and value.cols == b.cols


def _same(a: Value, b: Value) -> bool:
    return a.buffer is b.buffer and (a.row, a.col, a.shape[0], a.cols) == (b.row, b.col, b.shape[0], b.cols)


def _embedding_scale(g: _Graph) -> list[Node]:
    for node in g.nodes:
        reader = g.sole_reader(node.out) if isinstance(node, Embed) else None
        if isinstance(node, Embed) and isinstance(reader, Unary) and reader.kind == "scale" and _whole(reader.x):
            node.scale, node.out = reader.factor, reader.out
            g.remove(reader)
    return g.rest()


def _glu(g: _Graph) -> list[Node]:
    """act(gate) * up inside the linear that makes both: two matrices of one x, or two halves of one matrix."""
    for node in g.nodes:
        if isinstance(node, Glu):
            _glu_of_pair(g, node) or _glu_of_halves(g, node)
    return g.rest()


def _glu_of_pair(g: _Graph, node: Glu) -> bool:
    gate, up = g.writer.get(node.gate.buffer), g.writer.get(node.up.buffer)
    if not (isinstance(gate, Linear) and isinstance(up, Linear)) or gate is up or not _same(gate.x, up.x):
        return False
    if len(gate.outputs) != 1 or len(up.outputs) != 1 or not (gate.outputs[0].plain and up.outputs[0].plain):
        return False
    if g.sole_reader(node.gate) is not node or g.sole_reader(node.up) is not node:
        return False
    if not (_whole(node.gate) and _whole(node.up)):
        return False
    _pair(node, gate, gate.outputs[0], up.outputs[0])
    first, second = sorted((gate, up), key=lambda n: g.index[id(n)])
    if first is gate:
        g.remove(up)
    else:  # the pair takes the place of the first of the two
        first.outputs = gate.outputs
        g.remove(second)
    g.remove(node)
    return True


def _glu_of_halves(g: _Graph, node: Glu) -> bool:
    linear = g.writer.get(node.gate.buffer)
    if not isinstance(linear, Linear) or node.up.buffer is not node.gate.buffer or len(linear.outputs) != 1:
        return False
    whole = linear.outputs[0]
    if not whole.plain or any(reader is not node for reader in g.readers[node.gate.buffer]):
        return False
    halves = [replace(whole, y=v, first_row=v.col) for v in (node.gate, node.up)]
    _pair(node, linear, halves[0], halves[1])
    g.remove(node)
    return True


def _pair(node: Glu, linear: Linear, gate: OutputSpec, up: OutputSpec) -> None:
    gate.act, gate.partner, gate.y = node.act, up, node.out
    linear.outputs = [gate]


def _epilogues(g: _Graph) -> list[Node]:
    """Scale, softcap, activation and residual sum on each piece of a product while it is in the cache."""
    for node in g.nodes:
        if isinstance(node, Linear) and id(node) not in g.gone:
            while len(node.outputs) == 1 and _absorb(g, node, node.outputs[0]):
                pass
    return g.rest()


def _absorb(g: _Graph, node: Linear, o: OutputSpec) -> bool:
    reader = g.sole_reader(o.y)
    if (
        not _whole(o.y)
        or o.add is not None
        or reader is None
        or any(v.shape[0] != o.y.shape[0] for v in reader.reads())
    ):
        return False
    if isinstance(reader, Unary) and _whole(reader.x) and o.partner is None and o.act is None:
        if reader.kind == "activate":
            o.act = reader.act
        elif reader.kind == "softcap" and not o.softcap:
            o.softcap = reader.factor
        elif reader.kind == "scale" and o.scale == 1.0 and not o.softcap:
            o.scale = reader.factor
        else:
            return False
    elif isinstance(reader, Binary) and reader.kind == "add" and reader.a.buffer is not reader.b.buffer:
        mine, other = (reader.a, reader.b) if reader.a.buffer is o.y.buffer else (reader.b, reader.a)
        if not _whole(mine) or not g.before(other, node):
            return False
        o.add = other
    else:
        return False
    o.y = reader.out
    g.writer[o.y.buffer] = node
    g.remove(reader)
    return True


def _shared_inputs(g: _Graph) -> list[Node]:
    """Neighbouring linears of one x prepare it once and wait once."""
    out: list[Node] = []
    for node in g.nodes:
        before = out[-1] if out else None
        if isinstance(node, Linear) and isinstance(before, Linear) and _same(node.x, before.x) and _free(node, before):
            before.outputs += node.outputs
        else:
            out.append(node)
    return out


def _free(node: Linear, before: Linear) -> bool:
    """Does node read nothing that the one before it writes?"""
    written = [value.buffer for value in before.writes()]
    return not any(value.buffer in written for value in node.reads())


def _norms(g: _Graph) -> list[Node]:
    """A norm that only one linear reads happens while that linear prepares its x."""
    for node in g.nodes:
        reader = g.sole_reader(node.out) if isinstance(node, NormNode) else None
        if not isinstance(node, NormNode) or not isinstance(reader, Linear) or not _whole(reader.x):
            continue
        if reader.x.buffer is node.out.buffer:
            reader.x, reader.norm = node.x, node.norm
            g.remove(node)
    return g.rest()


def _attention_heads(g: _Graph) -> list[Node]:
    """Norm and rotation of queries and keys happen in place, in the attention instruction's first phase."""
    for node in g.nodes:
        if not isinstance(node, Attention):
            continue
        q, k = _head_chain(g, node.q, node), _head_chain(g, node.k, node)
        if q is None or k is None or (q.rope and q.rope.rope) != (k.rope and k.rope.rope):
            continue
        if not (_alone(g, q) and _alone(g, k)):
            continue
        node.q, node.k, node.q_norm, node.k_norm = q.x, k.x, q.norm, k.norm
        if q.rope is not None:
            node.rope, node.table = q.rope.rope, q.rope.table
        for part in (*q.nodes, *k.nodes):
            g.remove(part)
    return g.rest()


class _Chain:
    """x -> norm -> rope -> attention, either step optional."""

    def __init__(self, x: Value) -> None:
        self.x = x
        self.rope: Rope | None = None
        self.norm: NormSpec | None = None
        self.nodes: list[Node] = []


def _head_chain(g: _Graph, value: Value, reader: Node) -> _Chain | None:
    """Follow the value back through rope and norm; None where an intermediate value has other readers."""
    chain = _Chain(value)
    while True:
        writer = g.writer.get(chain.x.buffer)
        rope = isinstance(writer, Rope) and chain.rope is None and chain.norm is None
        norm = isinstance(writer, NormNode) and chain.norm is None
        if not (rope or norm):
            return chain
        assert isinstance(writer, Rope | NormNode)
        if g.sole_reader(chain.x) is not reader:
            return None
        if isinstance(writer, Rope):
            chain.rope = writer
        else:
            chain.norm = writer.norm
        chain.nodes.append(writer)
        reader = writer
        chain.x = writer.x


def _alone(g: _Graph, chain: _Chain) -> bool:
    """May the chain's input be changed where it lies: a linear made it, and nobody else reads those columns?"""
    if not chain.nodes:
        return True
    x = chain.x
    others = [r for r in g.readers[x.buffer] if r not in chain.nodes]
    values = [v for r in others for v in r.reads() if v.buffer is x.buffer]
    apart = all(v.col >= x.col + x.cols or x.col >= v.col + v.cols for v in values)
    return apart and isinstance(g.writer.get(x.buffer), Linear)


def needed_rows(nodes: list[Node], n_tokens: int) -> None:
    """Marks nodes whose results are read for the last R rows only, from the logits back to the last attention."""
    wide: set[Buffer] = set()  # buffers of which somebody reads every row
    for node in reversed(nodes):
        if not node.last and node.rowwise and not any(value.buffer in wide for value in node.writes()):
            node.last = True
        if not node.last:
            wide.update(value.buffer for value in node.reads() if value.shape[0] == n_tokens)
