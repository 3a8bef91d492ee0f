"""Several sequences at once: what waiting for each other costs, and how large a batch should be.

A step over B sequences takes `fixed + variable * B`: the weights are read once, each sequence adds its own work.
"""

from __future__ import annotations

from collections.abc import Sequence

from localinfer.records import dataclass


def padding_waste(lengths: Sequence[int]) -> float:
    """Share of the slots of a batch, padded to its longest member, that does nothing."""
    return 1 - sum(lengths) / (max(lengths) * len(lengths))


@dataclass(frozen=True)
class BatchLatency:
    """A batch of answers: when the static batch ends, when each would have ended by itself, and slots used."""

    static: float
    continuous: tuple[float, ...]
    mean: float
    slots: int
    useful: int


def batch_latency(lengths: Sequence[int], step: float) -> BatchLatency:
    """Static batching ends with its longest member; continuous batching lets each one go when it is done."""
    continuous = tuple(n * step for n in lengths)
    slots = max(lengths) * len(lengths)
    return BatchLatency(max(continuous), continuous, sum(continuous) / len(lengths), slots, sum(lengths))


def batch_knee(fixed: float, variable: float) -> float:
    """The batch at which the sequences' own work equals the fixed work: beyond it a larger batch gains little."""
    return fixed / variable


def batch_throughput(batch: int, fixed_ms: float, variable_ms: float) -> float:
    """Tokens/s of a batch whose step takes fixed + variable * batch milliseconds."""
    return 1000 * batch / (fixed_ms + variable_ms * batch)


def max_batch_for(limit: float, fixed: float, variable: float) -> int:
    """The largest batch whose step stays within `limit`."""
    return max(0, int((limit - fixed) / variable))


@dataclass(frozen=True)
class Concurrency:
    """Little's law for a request rate: requests in flight, and replicas that carry them."""

    in_flight: float
    replica_rate: float
    replicas_for_throughput: int
    replicas_for_latency: int
    slots: int
    utilisation: float


def concurrency(rate: float, latency: float, batch: int, batch_latency: float) -> Concurrency:
    """`rate` requests/s of `latency` seconds each, on replicas that serve `batch` in `batch_latency` seconds.

    Enough replicas for the throughput may still queue: for the latency each request in flight needs a slot.
    """
    in_flight = rate * latency
    replica_rate = batch / batch_latency
    for_throughput, for_latency = _ceil(rate / replica_rate), _ceil(in_flight / batch)
    return Concurrency(
        in_flight, replica_rate, for_throughput, for_latency, for_latency * batch, rate / (for_latency * replica_rate)
    )


def _ceil(x: float) -> int:
    return -int(-(x - 1e-9) // 1)


@dataclass(frozen=True)
class StepLine:
    """Step time as a line over bytes read, through two measured steps: what a device does between them."""

    base_s: float
    s_per_byte: float

    @classmethod
    def through(cls, a: tuple[float, float], b: tuple[float, float]) -> StepLine:
        """Each point is (bytes read, seconds)."""
        slope = (b[1] - a[1]) / (b[0] - a[0])
        return cls(a[1] - slope * a[0], slope)

    def at(self, n_bytes: float) -> float:
        return self.base_s + self.s_per_byte * n_bytes
