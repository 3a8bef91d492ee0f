"""MemoryBar: where the memory goes, against what may be used and what is free now. All figures are the planner's."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual.reactive import reactive

from localinfer.tui.widgets.line import Line
from localinfer.units import short_bytes

BAR = 20  # cells at most


class MemoryBar(Line):
    """weights, KV used, KV reserved, scratch, free: a bar and its legend. Empty where there is no plan."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "memory--weights", "memory--kv", "memory--reserved", "memory--other", "memory--free", "memory--text",
        "memory--warning",
    }  # fmt: skip

    PART = "memory"

    _drawn = Text()

    plan: reactive[Any] = reactive(None)
    context: reactive[tuple[int, int]] = reactive((0, 0), repaint=False)  # tokens used, limit

    def watch_context(self) -> None:
        """A few more tokens seldom show."""
        if self._text() != self._drawn:
            self.refresh()

    def render(self) -> Text:
        self._drawn = self._text()
        return self._drawn

    def _text(self) -> Text:
        if self.plan is None:
            return Text()
        parts = self._parts()
        legend = {name: self._entry(name, figure) for name, _, figure, _ in parts if figure}
        for name in ("scratch", "free now", "free", "weights", "KV"):  # in this order they give way
            if BAR + sum(entry.cell_len + 2 for entry in legend.values()) > self.size.width - 5:
                legend.pop(name, None)
        bar = self._bar([(share, style) for _, share, _, style in parts])
        return Text("  ").join([bar, *legend.values()])

    def _parts(self) -> list[tuple[str, float, str, str]]:
        """(name, share of the budget, figure for people, style)."""
        plan = self.plan
        budget = max(plan.budget.budget_bytes, 1)
        used, limit = self.context
        kv = plan.parts["kv"]
        kv_used = kv * min(used, limit) // limit if limit else 0
        other = plan.total - plan.parts["weights"] - kv
        free = plan.budget.free_bytes
        ceiling = f"{short_bytes(max(plan.left, 0))} of {short_bytes(budget)}"
        return [
            ("weights", plan.parts["weights"] / budget, short_bytes(plan.parts["weights"]), "weights"),
            ("KV", kv_used / budget, f"{short_bytes(kv_used)} of {short_bytes(kv)}", "kv"),
            ("", (kv - kv_used) / budget, "", "reserved"),
            ("scratch", other / budget, short_bytes(other), "other"),
            ("free", 0.0, ceiling, "free"),
            ("free now", 0.0, short_bytes(free) if free is not None else "", "warning" if plan.short_now else "free"),
        ]

    def _entry(self, name: str, figure: str) -> Text:
        return Text.assemble((name + " ", self.style("free")), (figure, self.style("text")))

    def _bar(self, shares: list[tuple[float, str]]) -> Text:
        """Every part that takes anything gets at least one cell."""
        bar = Text()
        for share, style in shares:
            n = max(1, round(share * BAR)) if share > 0 else 0
            bar.append("━" * min(n, BAR - bar.cell_len), self.style(style))
        bar.append("━" * (BAR - bar.cell_len), self.style("free"))
        return bar
