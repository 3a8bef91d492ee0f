"""Moving bytes instead of keeping or recomputing them: offloaded weights, kept prefixes, smaller KV.

Bytes are integers, rates bytes/s, times seconds.
"""

from __future__ import annotations

from typing import Literal

from localinfer.records import dataclass


def transfer_s(n_bytes: float, bandwidth: float) -> float:
    """Seconds to move n_bytes."""
    return n_bytes / bandwidth


def offload_saving(sets: int, set_bytes: int, buffers: int) -> int:
    """Device bytes freed by keeping `sets` weight sets elsewhere and streaming them through `buffers` buffers."""
    return (sets - buffers) * set_bytes


@dataclass(frozen=True)
class OffloadCost:
    """What streaming weights costs when nothing hides it: seconds a step, and over a whole answer."""

    step_s: float
    total_s: float


def offload_cost(n_bytes: int, link: float, steps: int) -> OffloadCost:
    """Copying n_bytes over a link at every one of `steps` decode steps."""
    step = transfer_s(n_bytes, link)
    return OffloadCost(step, step * steps)


def decompressor_must_beat(link: float, ratio: float) -> float:
    """Output bytes/s a decompressor needs for compressed copies (saving `ratio` of the bytes) to be faster."""
    return link / (1 - ratio)


@dataclass(frozen=True)
class PrefixValue:
    """Keeping a prefix's KV elsewhere: seconds gained a request on average, and the hit rate where that is 0."""

    value_s: float
    break_even_hit: float

    @property
    def keep(self) -> bool:
        return self.value_s > 0


def prefix_value(recompute_s: float, n_bytes: int, bandwidth: float, hit: float) -> PrefixValue:
    """hit * (recompute - fetch) - store, where storing and fetching each move the bytes once."""
    move = transfer_s(n_bytes, bandwidth)
    gain = recompute_s - move
    return PrefixValue(hit * gain - move, move / gain if gain > 0 else float("inf"))


@dataclass(frozen=True)
class RestoreChoice:
    restore_s: float
    choice: Literal["restore", "prefill"]


def restore_or_prefill(n_bytes: int, bandwidth: float, prefill_s: float) -> RestoreChoice:
    """Read a saved KV cache back, or compute it again: whichever is faster."""
    restore = transfer_s(n_bytes, bandwidth)
    return RestoreChoice(restore, "restore" if restore < prefill_s else "prefill")


def kv_saving_s(saved_bytes: int, bandwidth: float, convert_s: float) -> float:
    """Seconds a step that a smaller KV type saves: fewer bytes read, less its conversion. Negative: it costs."""
    return saved_bytes / bandwidth - convert_s


def kv_pays_from(fixed: tuple[float, float], per_token: tuple[float, float]) -> float:
    """Context from which the second KV type (more fixed work, less a token) is faster; inf where never."""
    gain = per_token[0] - per_token[1]
    return max(0.0, (fixed[1] - fixed[0]) / gain) if gain > 0 else float("inf")
