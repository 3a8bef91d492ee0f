"""BenchPlot: measured speed over the depth of the context, as a picture beside an earlier run's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.color import Color
from textual_plotext import PlotextPlot

from localinfer.tui.bench_runs import BenchRow

SIDES = {"decode": ("left", "primary"), "prefill": ("right", "accent")}  # each has a scale of its own


class BenchPlot(PlotextPlot):
    """Decode on the left scale, prefill on the right one; an earlier run as dots. Nothing to see below two depths."""

    def __init__(self) -> None:
        super().__init__(classes="-empty")
        self.rows: Sequence[BenchRow] = ()
        self.earlier: Sequence[BenchRow] = ()

    def show(self, rows: Sequence[BenchRow], earlier: Sequence[BenchRow]) -> None:
        self.rows, self.earlier = rows, earlier
        self.set_class(max(n_depths(rows), n_depths(earlier)) < 2, "-empty")
        self._draw()

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def _draw(self) -> None:
        plot: Any = self.plt  # its annotations are narrower than what it takes
        plot.clear_figure()
        for kind, (side, colour) in SIDES.items():
            tint = Color.parse(self.app.theme_variables[colour]).rgb
            now, before = line_of(self.rows, kind), line_of(self.earlier, kind)
            if now[0]:
                plot.plot(*now, marker="braille", color=tint, yside=side)
            if before[0]:
                plot.scatter(*before, marker="dot", color=tint, yside=side)
            top = max([*now[1], *before[1]], default=0.0)
            if top:
                plot.ylim(0, top * 1.05, yside=side)
        depths = sorted({row.depth for row in (*self.rows, *self.earlier)})
        plot.xticks(depths, [str(depth) for depth in depths])
        self.border_subtitle = "tok/s by depth:  " + "  ".join(self._legend())
        self.refresh()

    def _legend(self) -> list[str]:
        """What the colours mean: below the picture, where it hides nothing."""
        parts = [f"[${colour}]━ {kind}[/] ({side})" for kind, (side, colour) in SIDES.items()]
        return [*parts, "• earlier"] if self.earlier else parts


def line_of(rows: Sequence[BenchRow], kind: str) -> tuple[list[int], list[float]]:
    """Depths, ascending, and the tokens per second at them."""
    points = sorted((row.depth, row.tok_s) for row in rows if row.kind == kind)
    return [depth for depth, _ in points], [tok_s for _, tok_s in points]


def n_depths(rows: Sequence[BenchRow]) -> int:
    return len({row.depth for row in rows})
