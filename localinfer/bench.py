"""Measure a loaded model the way chat uses it: prefill and decode at context depths, and what checking drafts costs.

Every row runs through Engine.generate, so nothing here is faster than a chat. Rates are set against what the machine
can do at best, measured in the same run, between the repetitions.

A prefill row: `n` new tokens after `depth` cached ones. A decode row: `n` tokens drawn greedily after `depth`.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from localinfer.engine.events import TurnDone, TurnStats
from localinfer.engine.params import EngineOptions, SamplingParams

if TYPE_CHECKING:
    from localinfer.engine.engine import Engine
    from localinfer.planner.plan import Plan

QUIET = SamplingParams(temperature=0, ignore_eos=True, draft="off")
VERIFY_REPS = 5


@dataclass(frozen=True)
class BenchAsk:
    """Lists multiply. Token counts."""

    pp: Sequence[int] = (512,)
    tg: Sequence[int] = (64,)
    depths: Sequence[int] = (0,)
    kvs: Sequence[str] = ("f16",)
    threads: Sequence[int | None] = (None,)
    reps: int = 3
    verify: Sequence[int] = ()  # rows that are checked at a time

    @property
    def n_ctx(self) -> int:
        return max(self.depths) + max((*self.pp, *self.tg, *self.verify, 1)) + 1


@dataclass(frozen=True)
class Row:
    """One measurement. `mbu`: share of the bandwidth that decoding reached, None where it means nothing."""

    kind: str  # prefill, decode, verify
    n: int
    depth: int
    kv: str
    threads: int
    reps: tuple[float, ...]  # tokens (verify: rounds) a second
    read_bytes_per_token: int
    mbu: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.reps)

    @property
    def spread(self) -> float:
        """(max - min) / median of the repetitions."""
        return (max(self.reps) - min(self.reps)) / self.median

    def as_json(self) -> dict[str, Any]:
        tok_s = {"min": min(self.reps), "median": self.median, "max": max(self.reps)}
        return {
            "kind": self.kind, "n": self.n, "depth": self.depth, "kv": self.kv, "threads": self.threads,
            "tok_s": tok_s, "reps": list(self.reps), "read_bytes_per_token": self.read_bytes_per_token,
            "mbu": self.mbu,
        }  # fmt: skip


class Roof:
    """What the device can read and compute at best; grows with every look."""

    def __init__(self) -> None:
        self.bandwidth_bytes_s = 0.0
        self.flops = 0.0
        self._ceilings: Any = None

    def look(self, engine: Engine) -> None:
        """Measure again where the device can be measured, else take the planner's figure."""
        backend = engine.backend
        if hasattr(backend, "pool") and self._ceilings is None:
            from localinfer.backends.cpu.measure import Ceilings

            self._ceilings = Ceilings(backend)
        if self._ceilings is not None:
            self._ceilings.rebind(backend)
            self._ceilings.measure()
            self.saw(self._ceilings.bandwidth_bytes_s, self._ceilings.flops)
        elif engine.plan:
            self.saw(engine.plan.budget.bandwidth_bytes_s or 0.0, engine.plan.budget.flops or 0.0)

    def saw(self, bandwidth: float, flops: float = 0.0) -> None:
        """A rate that was reached is a rate that can be reached: so no share is ever above 1."""
        self.bandwidth_bytes_s = max(self.bandwidth_bytes_s, bandwidth)
        self.flops = max(self.flops, flops)


def run_bench(
    open_engine: Callable[[EngineOptions], Engine],
    ask: BenchAsk,
    options: EngineOptions,
    roof: Roof,
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[Row]:
    """Rows as they come. Shares of the bandwidth are set by `with_mbu` once the roof is known."""
    for threads in ask.threads:
        for kv in ask.kvs:
            with open_engine(replace(options, kv=kv, threads=threads or options.threads, ctx=ask.n_ctx)) as engine:
                for depth in ask.depths:
                    yield from _rows_at(engine, ask, depth, roof, progress)


def _rows_at(engine: Engine, ask: BenchAsk, depth: int, roof: Roof, progress: Callable[[str], None]) -> Iterator[Row]:
    ids = random_ids(engine, ask.n_ctx)
    fill(engine, ids[:depth])
    for n in ask.pp:
        progress(f"prefill {n} at depth {depth}, {engine.options.kv}")
        rates = [_timed(engine, roof, partial(prefill_rate, engine, ids, depth, n)) for _ in range(ask.reps + 1)]
        yield _row(engine, "prefill", n, depth, rates[1:], roof)
    for n in ask.tg:
        progress(f"decode {n} at depth {depth}, {engine.options.kv}")
        rates = [_timed(engine, roof, partial(decode_rate, engine, ids, depth, n)) for _ in range(ask.reps)]
        yield _row(engine, "decode", n, depth, rates, roof)
    for n in ask.verify:
        progress(f"check {n} rows at depth {depth}, {engine.options.kv}")
        rates = [verify_rate(engine, ids, depth, n) for _ in range(VERIFY_REPS + 1)]
        yield _row(engine, "verify", n, depth, rates[1:], roof)


def _timed(engine: Engine, roof: Roof, measure: Callable[[], float]) -> float:
    roof.look(engine)
    return measure()


def _row(engine: Engine, kind: str, n: int, depth: int, rates: Sequence[float], roof: Roof) -> Row:
    mean_depth = depth + n // 2 if kind == "decode" else depth
    read = read_bytes(engine.plan, mean_depth) if engine.plan else 0
    if kind == "decode":
        roof.saw(read * max(rates))
    return Row(kind, n, depth, engine.options.kv, engine.threads, tuple(rates), read)


def with_mbu(row: Row, bandwidth_bytes_s: float) -> Row:
    """The row with its share of the bandwidth; several rows at a time are bound by arithmetic and get none."""
    if row.kind != "decode" or not bandwidth_bytes_s or not row.read_bytes_per_token:
        return row
    return replace(row, mbu=row.read_bytes_per_token * row.median / bandwidth_bytes_s)


def verify_costs(rows: Sequence[Row]) -> dict[int, float]:
    """Of a pass over n tokens at the least depth measured, in passes over one; empty where one was not measured."""
    checked = [row for row in rows if row.kind == "verify"]
    rates = {row.n: row.median for row in checked if row.depth == min(r.depth for r in checked)}
    return {n: rates[1] / rate for n, rate in rates.items()} if 1 in rates else {}


def read_bytes(plan: Plan, depth: int) -> int:
    """Bytes that one decoded token reads: the weights it touches and the KV it sees."""
    from localinfer.planner.speed import kv_read_bytes, weight_read_bytes

    return weight_read_bytes(plan.model) + kv_read_bytes(plan, depth)


def random_ids(engine: Engine, n: int) -> list[int]:
    """The same ids every time, from the middle of the vocabulary: text does not matter, repetition would."""
    vocabulary = engine.config.n_vocab
    rng = random.Random(0)
    return [rng.randrange(vocabulary // 50, vocabulary - vocabulary // 50) for _ in range(n)]


def fill(engine: Engine, ids: Sequence[int]) -> None:
    """The cache holds exactly these tokens."""
    if ids:
        _turn(engine, ids, 0)
    else:
        engine.conversation.clear()


def prefill_rate(engine: Engine, ids: Sequence[int], depth: int, n: int) -> float:
    """Tokens a second over n tokens after `depth`."""
    fill(engine, ids[:depth])
    return _turn(engine, ids[: depth + n], 0).prefill_tok_s


def decode_rate(engine: Engine, ids: Sequence[int], depth: int, n: int) -> float:
    """Tokens a second over n steps; the first token belongs to the prompt."""
    return _turn(engine, ids[: max(1, depth)], n + 1).decode_tok_s


def verify_rate(engine: Engine, ids: Sequence[int], depth: int, n: int) -> float:
    """Rounds a second, each with n rows of logits: what checking n - 1 guesses costs."""
    fill(engine, ids[:depth])
    start = time.perf_counter()
    engine.conversation.extend(ids[depth : depth + n], rows=n)
    rate = 1.0 / (time.perf_counter() - start)
    engine.conversation.rollback(depth)
    return rate


def _turn(engine: Engine, ids: Sequence[int], n: int) -> TurnStats:
    for event in engine.generate(ids, replace(QUIET, max_tokens=n)):
        if isinstance(event, TurnDone):
            return event.stats
    raise AssertionError("a turn ends with TurnDone")
