"""What a recorded Program becomes on its way to the kernels: one node a future instruction.

A node says which values it reads and writes, so that lifetimes and fusions can be worked out for all kinds alike.
Values are views of buffers (models/program.py); `rows` of a node are all T tokens or only the last R.
"""

from __future__ import annotations

from collections.abc import Iterator

from localinfer.backends.cpu.weights import CpuWeight
from localinfer.models.config import Activation, AttentionConfig, MoEConfig, RopeConfig, StateConfig
from localinfer.models.ops import MoEWeights, ScanWeights
from localinfer.models.program import Value
from localinfer.records import dataclass


@dataclass(eq=False)
class NormSpec:
    """RMS or layer norm over groups of `group` values."""

    kind: str  # rms, layer
    group: int
    eps: float
    w: CpuWeight | None = None
    b: CpuWeight | None = None
    n_weights: int = 0  # values of w and of b: one group's, or all groups'


@dataclass(eq=False)
class Node:
    """`last`: computes only the rows that logits are asked for. `rowwise`: row t of a result needs row t alone."""

    last = False
    rowwise = True

    def reads(self) -> Iterator[Value]:
        raise NotImplementedError

    def writes(self) -> Iterator[Value]:
        raise NotImplementedError


class OneResult(Node):
    out: Value

    def writes(self) -> Iterator[Value]:
        yield self.out


@dataclass(eq=False)
class Embed(OneResult):
    table: CpuWeight
    out: Value
    scale: float = 1.0

    def reads(self) -> Iterator[Value]:
        yield from ()


@dataclass(eq=False)
class NormNode(OneResult):
    norm: NormSpec
    x: Value
    out: Value

    def reads(self) -> Iterator[Value]:
        yield self.x


@dataclass(eq=False)
class OutputSpec:
    """One matrix of a Linear and what happens to its result where it lies, in this order."""

    w: CpuWeight
    y: Value
    bias: CpuWeight | None = None
    first_row: int = 0  # of the matrix and of the bias
    scale: float = 1.0
    softcap: float = 0.0
    act: Activation | None = None
    partner: OutputSpec | None = None  # y = act(y) * partner's result
    add: Value | None = None

    @property
    def n_rows(self) -> int:
        return self.y.cols

    @property
    def plain(self) -> bool:
        """Nothing after the bias."""
        return self.scale == 1.0 and not self.softcap and self.act is None and self.partner is None and self.add is None


@dataclass(eq=False)
class Linear(Node):
    x: Value
    outputs: list[OutputSpec]
    norm: NormSpec | None = None

    def reads(self) -> Iterator[Value]:
        yield self.x
        for o in self.outputs:
            if o.add is not None:
                yield o.add

    def writes(self) -> Iterator[Value]:
        for o in self.outputs:
            yield o.y


@dataclass(eq=False)
class RopeTable(OneResult):
    """cos and sin for every token: out (T, n_dims)."""

    rope: RopeConfig
    out: Value
    rowwise = False

    def reads(self) -> Iterator[Value]:
        yield from ()


@dataclass(eq=False)
class Rope(OneResult):
    rope: RopeConfig
    table: Value
    x: Value
    out: Value
    rowwise = False

    def reads(self) -> Iterator[Value]:
        yield self.x
        yield self.table


@dataclass(eq=False)
class Attention(OneResult):
    q: Value
    k: Value
    v: Value
    out: Value
    layer: int
    config: AttentionConfig
    sinks: CpuWeight | None = None
    q_norm: NormSpec | None = None
    k_norm: NormSpec | None = None
    rope: RopeConfig | None = None
    table: Value | None = None
    rowwise = False

    def reads(self) -> Iterator[Value]:
        yield from (self.q, self.k, self.v)
        if self.table is not None:
            yield self.table


@dataclass(eq=False)
class Glu(OneResult):
    gate: Value
    up: Value
    out: Value
    act: Activation

    def reads(self) -> Iterator[Value]:
        yield from (self.gate, self.up)


@dataclass(eq=False)
class Unary(OneResult):
    """activate (act), scale (factor), softcap (factor) or position_scale (factor, every)."""

    kind: str
    x: Value
    out: Value
    act: Activation | None = None
    factor: float = 0.0
    every: int = 0

    def reads(self) -> Iterator[Value]:
        yield self.x


@dataclass(eq=False)
class Binary(OneResult):
    """add or mul; b may be one column."""

    kind: str
    a: Value
    b: Value
    out: Value

    def reads(self) -> Iterator[Value]:
        yield from (self.a, self.b)


@dataclass(eq=False)
class Moe(OneResult):
    x: Value
    logits: Value
    out: Value
    weights: MoEWeights
    config: MoEConfig
    act: Activation
    experts: int | None = None  # the pager of its experts, and its layer there
    paged_layer: int = 0

    def reads(self) -> Iterator[Value]:
        yield from (self.x, self.logits)


@dataclass(eq=False)
class EmbedPositions(OneResult):
    table: CpuWeight
    out: Value

    def reads(self) -> Iterator[Value]:
        yield from ()


@dataclass(eq=False)
class HeadCopy(OneResult):
    """Values [first, first + n) of every head of x (T, H or 1, .) to [out_first, ...) of every head of out."""

    x: Value
    out: Value
    first: int
    out_first: int
    n: int

    def reads(self) -> Iterator[Value]:
        yield self.x


@dataclass(eq=False)
class HeadLinear(OneResult):
    x: Value
    w: CpuWeight
    out: Value

    def reads(self) -> Iterator[Value]:
        yield self.x


@dataclass(eq=False)
class Conv(OneResult):
    x: Value
    out: Value
    w: CpuWeight
    bias: CpuWeight | None
    layer: int
    state: StateConfig
    rowwise = False

    def reads(self) -> Iterator[Value]:
        yield self.x


@dataclass(eq=False)
class Scan(OneResult):
    """Selective scan, or (with beta) the delta rule: then x is v, dt is alpha, b is k and c is q."""

    x: Value
    dt: Value
    b: Value
    c: Value
    out: Value
    weights: ScanWeights
    layer: int
    state: StateConfig
    beta: Value | None = None
    eps: float = 0.0
    rowwise = False

    def reads(self) -> Iterator[Value]:
        yield from (self.x, self.dt, self.b, self.c)
        if self.beta is not None:
            yield self.beta


@dataclass(eq=False)
class Page(Node):
    """A boundary: the streamed weights of the last reader are done, those of the next one are needed."""

    pager: int
    done: bool
    need: bool
    rowwise = False

    def reads(self) -> Iterator[Value]:
        yield from ()

    def writes(self) -> Iterator[Value]:
        yield from ()


@dataclass(eq=False)
class ExpertHint(Node):
    """A guess at a later layer's router: its favourites are loaded ahead."""

    logits: Value
    experts: int
    paged_layer: int
    config: MoEConfig
    rowwise = False

    def reads(self) -> Iterator[Value]:
        yield self.logits

    def writes(self) -> Iterator[Value]:
        yield from ()
