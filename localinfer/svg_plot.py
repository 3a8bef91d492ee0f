"""A line chart as SVG text: few lines, few features, no dependency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log10
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 44, 52
FONT = 'font-family="sans-serif" font-size="12"'
COLORS = ("#3465a4", "#cc4422", "#4e9a06", "#75507b", "#c17d11", "#06989a")


Place = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """(x, y) points, joined in order; dashed for what was computed rather than measured."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def line_chart(title: str, x_name: str, y_name: str, lines: Sequence[Line]) -> str:
    """Axes start at 0. Lines of one measurement and its bound share a color when they are listed in pairs."""
    x_top = _round_up(max((x for line in lines for x, _ in line.points), default=1) or 1)
    y_top = _round_up(max((y for line in lines for _, y in line.points), default=1) or 1)

    def place(x: float, y: float) -> tuple[float, float]:
        plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + x / x_top * plot_width, TOP + (1 - y / y_top) * plot_height

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
        *_axis(place, x_top, y_top),
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_name)}</text>',
        f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y_name)}</text>',
    ]
    names = list(dict.fromkeys(line.name.removesuffix(", bound") for line in lines))
    for i, line in enumerate(lines):
        color = COLORS[names.index(line.name.removesuffix(", bound")) % len(COLORS)]
        parts += _line(place, line, color, i)
    return "\n".join([*parts, "</svg>\n"])


def _axis(place: Place, x_top: float, y_top: float) -> list[str]:
    parts = []
    for i in range(5):
        x, y = x_top * i / 4, y_top * i / 4
        (x0, y0), (x1, _) = place(0, y), place(x_top, y)
        parts.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y0:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0 - 6:.1f}" y="{y0 + 4:.1f}" text-anchor="end">{y:g}</text>')
        px, py = place(x, 0)
        parts.append(f'<text x="{px:.1f}" y="{py + 18:.1f}" text-anchor="middle">{x:g}</text>')
    return parts


def _line(place: Place, line: Line, color: str, index: int) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in line.points))
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    y = TOP + 4 + 16 * index
    parts = [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dash}/>']
    if not line.dashed:
        dots = (place(*p) for p in line.points)
        parts += [f'<circle cx="{x:.1f}" cy="{y0:.1f}" r="3" fill="{color}"/>' for x, y0 in dots]
    x = WIDTH - RIGHT - 170
    parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" stroke="{color}" stroke-width="2"{dash}/>')
    parts.append(f'<text x="{x + 28}" y="{y + 4}">{escape(line.name)}</text>')
    return parts


def _round_up(x: float) -> float:
    """The next of 1, 2, 4, 6, 8 times a power of ten: quarters of it read well."""
    power = 10.0 ** (ceil(log10(x)) - 1)
    return next((m * power for m in (1, 2, 4, 6, 8, 10) if m * power >= x * 0.999), 10 * power)
