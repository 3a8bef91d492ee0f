"""How much memory a model may use: MemoryBudget, plain integers that somebody else measured.

Two ceilings are kept apart. `budget_bytes` is what may ever be used: it decides whether a model fits. `free_bytes` is
what is free right now: it decides whether something has to be closed first.
"""

from __future__ import annotations

from typing import Literal

from localinfer.records import dataclass

Platform = Literal["cpu", "metal", "cuda", "mlx-cpu"]


@dataclass(frozen=True)
class MemoryBudget:
    """One device's memory. `usable_bytes` is what the GPU (or the cgroup) may ever use, before the reserve."""

    name: str
    platform: Platform  # cpu: weights stay in mapped files; metal: adopted from them; cuda: copied to the device
    memory_bytes: int  # installed
    usable_bytes: int
    reserve_bytes: int  # kept back for the system and other programs
    source: str  # where the figures come from, for people
    free_bytes: int | None = None  # free now; None where the device is not this machine
    bandwidth_bytes_s: float | None = None  # memory bandwidth; None: not known
    flops: float | None = None  # dense 16-bit multiply-adds count two; None: not known
    link_bytes_s: float | None = None  # to where paged weights come from: host memory (cuda) or disk

    @property
    def budget_bytes(self) -> int:
        """What a plan may use: the device's limit, and never the system's reserve."""
        return max(0, min(self.usable_bytes, self.memory_bytes - self.reserve_bytes))


def left_after(memory_bytes: int, reserve_bytes: int, *parts: int) -> int:
    """Bytes left of a memory after a reserve and further parts; negative where they do not fit."""
    return memory_bytes - reserve_bytes - sum(parts)
