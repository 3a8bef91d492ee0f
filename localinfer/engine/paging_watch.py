"""Does paging go as forecast? One line when it does not."""

from __future__ import annotations

from localinfer.backends.base import PagingState, disk_is_slow
from localinfer.planner.plan import Plan


class PagingWatch:
    """Compares each turn with the plan. A slow disk is said once, and again when it gets much slower."""

    def __init__(self, plan: Plan) -> None:
        """Experts are single reads of a few hundred KB, which no disk does at full speed: only streams are compared."""
        streams = plan.paging is not None and plan.paging.streamed_bytes > 0
        self.forecast = (plan.budget.link_bytes_s or 0.0) if streams else 0.0
        self._said = self.forecast

    def notice(self, turn: PagingState) -> str:
        """What the user should know about this turn; mostly nothing."""
        if not disk_is_slow(turn, self._said):
            return ""
        self._said = turn.read_bytes / turn.read_s
        return (
            f"the disk is slower than forecast: {self._said / 1e9:.2g} GB/s instead of {self.forecast / 1e9:.2g}; "
            "`localinfer doctor` measures it again"
        )
