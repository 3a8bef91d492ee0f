"""Does paging go as forecast? One line when it does not."""

from __future__ import annotations

from localinfer.backends.base import PagingState
from localinfer.planner.plan import Plan

SLOW_SHARE = 0.7  # of the forecast speed: below, the user should know
LEAST_READ_S = 0.5  # shorter than this says nothing about a disk


class PagingWatch:
    """Compares each turn with the plan. A slow disk is said once, and again when it gets much slower."""

    def __init__(self, plan: Plan) -> None:
        self._forecast = plan.budget.link_bytes_s or 0.0
        self._said = self._forecast

    def notice(self, turn: PagingState) -> str:
        """What the user should know about this turn; mostly nothing."""
        if turn.read_s < LEAST_READ_S or not self._forecast:
            return ""
        found = turn.read_bytes / turn.read_s
        if found >= SLOW_SHARE * self._said:
            return ""
        self._said = found
        return (
            f"the disk is slower than forecast: {found / 1e9:.2g} GB/s instead of {self._forecast / 1e9:.2g}; "
            "`localinfer doctor` measures it again"
        )
