"""A model run written down once: the decoder's operations for T tokens as a flat list with a memory layout.

`Recorder` implements Ops by recording. What comes out, a `Program`, depends only on the model, T and the number of
logit rows: token ids, the start position and the KV cache are given when it runs. So the cpu backend records once
per shape and then runs a token in one C call, and the planner reads the exact scratch size off the same layout that
the engine allocates. Plain integers; no array library.

A `Buffer` is a float32 matrix in the arena, alive from its first instruction to its last; a `Value` is a view of one
(column offset and shape). Views record no instruction.
"""

from __future__ import annotations

from math import prod
from typing import Any

from localinfer.errors import FormatError
from localinfer.models.config import Activation, AttentionConfig, MoEConfig, RopeConfig, StateConfig
from localinfer.models.ops import MoEWeights, ScanWeights
from localinfer.records import dataclass, field

ALIGN = 64  # bytes; a cache line, so that two threads' rows never share one


@dataclass(eq=False)
class Buffer:
    """rows x cols float32 values. first/last: indices of the instructions that write it first and read it last."""

    rows: int
    cols: int
    first: int
    last: int
    offset: int = -1  # bytes from the start of the arena, set by layout()

    @property
    def n_bytes(self) -> int:
        return -(-self.rows * self.cols * 4 // ALIGN) * ALIGN


@dataclass(eq=False)
class Value:
    """A view: `shape` (T, ...) whose rows start `col` values into each row of `buffer`, first row `row`."""

    program: Program
    buffer: Buffer
    shape: tuple[int, ...]
    row: int = 0
    col: int = 0

    @property
    def cols(self) -> int:
        """Values per row, over all axes but the first."""
        return prod(self.shape[1:])

    def reshape(self, *shape: int) -> Value:
        """Same rows, the values of each row grouped differently; one -1 allowed. The row count stays."""
        known = prod(n for n in shape if n != -1)
        full = tuple(prod(self.shape) // known if n == -1 else n for n in shape)
        _check(full[0] == self.shape[0] and prod(full[1:]) == self.cols, self.shape, full)
        return Value(self.program, self.buffer, full, self.row, self.col)

    def __getitem__(self, key: Any) -> Value:
        """x[a:b] or x[:, a:b] on 2-D values."""
        rows, cols = key if isinstance(key, tuple) else (key, slice(None))
        r0, r1, _ = rows.indices(self.shape[0])
        if cols == slice(None):
            return Value(self.program, self.buffer, (r1 - r0, *self.shape[1:]), self.row + r0, self.col)
        assert len(self.shape) == 2
        c0, c1, _ = cols.indices(self.shape[1])
        return Value(self.program, self.buffer, (r1 - r0, c1 - c0), self.row + r0, self.col + c0)

    def __add__(self, other: Value) -> Value:
        _check(other.shape == self.shape, self.shape, other.shape)
        return self.program.emit("add", self.shape, (self, other))

    def __mul__(self, other: Value | float) -> Value:
        if isinstance(other, Value):
            _check(other.shape in (self.shape, (*self.shape[:-1], 1)), self.shape, other.shape)
            return self.program.emit("mul", self.shape, (self, other))
        return self.program.emit("scale", self.shape, (self,), factor=float(other))

    __rmul__ = __mul__


@dataclass(eq=False)
class Instruction:
    """One operation: `op` is an Ops method's name or add / mul / scale; `weights` as the caller passed them."""

    op: str
    out: Value
    inputs: tuple[Value, ...]
    weights: tuple[Any, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)


def _check(fits: bool, a: tuple[int, ...], b: tuple[int, ...], w: Any = None) -> None:
    """Shapes come from a file: where they do not fit together, that is the file's fault and not a bug."""
    if not fits:
        where = f" at {w.name}" if hasattr(w, "name") else ""
        raise FormatError(
            f"the shapes of this model's tensors and metadata do not fit together{where}: {list(a)} meets {list(b)}",
            "the file is damaged, or from a converter that does something else; `localinfer inspect` shows it",
        )


class Program:
    """Instructions in order, and where their buffers lie. `n_tokens` and `n_rows` are its fixed shapes."""

    def __init__(self, n_tokens: int, n_rows: int) -> None:
        self.n_tokens = n_tokens
        self.n_rows = n_rows
        self.instructions: list[Instruction] = []
        self.buffers: list[Buffer] = []
        self.result: Value | None = None

    def emit(
        self,
        op: str,
        shape: tuple[int, ...],
        inputs: tuple[Value, ...] = (),
        weights: tuple[Any, ...] = (),
        **params: Any,
    ) -> Value:
        index = len(self.instructions)
        buffer = Buffer(shape[0], prod(shape[1:]), index, index)
        self.buffers.append(buffer)
        out = Value(self, buffer, shape)
        for value in inputs:
            value.buffer.last = index
        self.instructions.append(Instruction(op, out, inputs, weights, params))
        return out

    def layout(self) -> int:
        """Give every buffer its offset, reusing room once its last reader is done; returns the arena's bytes.

        Greedy by size: the largest buffer first, each at the lowest offset where no buffer alive at the same time is.
        """
        if self.result is not None:
            self.result.buffer.last = len(self.instructions)
        # Buffers live for a few instructions of thousands, so those alive together are looked up by instruction.
        placed_at: list[list[Buffer]] = [[] for _ in range(len(self.instructions) + 1)]
        arena_bytes = 0
        for buffer in sorted(self.buffers, key=lambda b: (-b.n_bytes, b.first)):
            lifetime = range(buffer.first, buffer.last + 1)
            alive = {id(b): b for i in lifetime for b in placed_at[i]}.values()
            offset = 0
            for other in sorted(alive, key=lambda b: b.offset):
                if other.offset - offset >= buffer.n_bytes:
                    break
                offset = max(offset, other.offset + other.n_bytes)
            buffer.offset = offset
            arena_bytes = max(arena_bytes, offset + buffer.n_bytes)
            for i in lifetime:
                placed_at[i].append(buffer)
        return arena_bytes


class Recorder:
    """Ops that record. Weights are kept as given; `start`, `ids` and `kv` are filled in when the program runs."""

    def __init__(self, n_tokens: int, n_rows: int) -> None:
        self.program = Program(n_tokens, n_rows)

    def embed(self, w: Any, ids: Any) -> Value:
        return self.program.emit("embed", (self.program.n_tokens, w.shape[-1]), (), (w,))

    def embed_positions(self, w: Any, start: Any, n_tokens: int) -> Value:
        return self.program.emit("embed_positions", (n_tokens, w.shape[-1]), (), (w,))

    def linear(self, x: Value, w: Any, bias: Any | None = None) -> Value:
        _check(w.shape[-1] == x.cols, x.shape, w.shape, w)
        n_out = w.shape[0] if len(w.shape) > 1 else 1
        return self.program.emit("linear", (x.shape[0], n_out), (x,), (w, bias))

    def rms_norm(self, x: Value, w: Any | None, eps: float) -> Value:
        _check(w is None or prod(w.shape) in (x.shape[-1], x.cols), x.shape, w.shape if w else (), w)
        return self.program.emit("rms_norm", x.shape, (x,), (w,), eps=eps)

    def layer_norm(self, x: Value, w: Any | None, bias: Any | None, eps: float) -> Value:
        _check(w is None or prod(w.shape) in (x.shape[-1], x.cols), x.shape, w.shape if w else (), w)
        return self.program.emit("layer_norm", x.shape, (x,), (w, bias), eps=eps)

    def rope(self, x: Value, start: Any, rope: RopeConfig) -> Value:
        return self.program.emit("rope", x.shape, (x,), rope=rope)

    def position_scale(self, x: Value, start: Any, every: int, scale: float) -> Value:
        return self.program.emit("position_scale", x.shape, (x,), every=every, scale=scale)

    def attention(
        self, q: Value, k: Value, v: Value | None, kv: Any, layer: int, attn: AttentionConfig, sinks: Any | None = None
    ) -> Value:
        _check(q.cols == attn.n_heads * attn.d_k and k.cols == attn.n_kv_heads * attn.d_k, q.shape, k.shape)
        _check(v is None or v.cols == attn.n_kv_heads * attn.d_v, k.shape, v.shape if v else ())
        shape = (q.shape[0], attn.n_heads * attn.d_v)
        inputs = (q, k) if v is None else (q, k, v)
        return self.program.emit("attention", shape, inputs, (sinks,), layer=layer, attn=attn)

    def glu(self, gate: Value, up: Value, act: Activation) -> Value:
        _check(gate.shape == up.shape, gate.shape, up.shape)
        return self.program.emit("glu", gate.shape, (gate, up), act=act)

    def activate(self, x: Value, act: Activation) -> Value:
        return self.program.emit("activate", x.shape, (x,), act=act)

    def softcap(self, x: Value, cap: float) -> Value:
        return self.program.emit("softcap", x.shape, (x,), cap=cap)

    def head_slice(self, x: Value, first: int, end: int) -> Value:
        return self.program.emit("head_slice", (*x.shape[:2], end - first), (x,), first=first, end=end)

    def head_concat(self, a: Value, b: Value) -> Value:
        return self.program.emit("head_concat", (*a.shape[:2], a.shape[2] + b.shape[2]), (a, b))

    def head_linear(self, x: Value, w: Any) -> Value:
        _check(len(w.shape) == 3 and w.shape[0] == x.shape[1] and w.shape[2] == x.shape[2], x.shape, w.shape)
        return self.program.emit("head_linear", (*x.shape[:2], w.shape[1]), (x,), (w,))

    def causal_conv(self, x: Value, w: Any, bias: Any | None, kv: Any, layer: int, state: StateConfig) -> Value:
        return self.program.emit("causal_conv", x.shape, (x,), (w, bias), layer=layer, state=state)

    def scan(
        self, x: Value, dt: Value, b: Value, c: Value, w: ScanWeights, kv: Any, layer: int, s: StateConfig
    ) -> Value:
        return self.program.emit("scan", x.shape, (x, dt, b, c), (w,), layer=layer, state=s)

    def delta_rule(
        self, q: Value, k: Value, v: Value, alpha: Value, beta: Value, w: ScanWeights, kv: Any, layer: int,
        s: StateConfig, eps: float,
    ) -> Value:  # fmt: skip
        return self.program.emit("delta_rule", v.shape, (q, k, v, alpha, beta), (w,), layer=layer, state=s, eps=eps)

    def moe(self, x: Value, w: MoEWeights, moe: MoEConfig, act: Activation) -> Value:
        return self.program.emit("moe", x.shape, (x,), (w,), moe=moe, act=act)
