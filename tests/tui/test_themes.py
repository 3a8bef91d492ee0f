"""Text can be read on every ground it is drawn on: a contrast of 4.5, as WCAG 2.1 asks (1.4.3)."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.theme import Theme

from localinfer.tui.themes import DARK, LIGHT

TEXT = ("foreground", "muted", "primary", "accent", "success", "warning", "error", "code-word")
GROUNDS = ("background", "surface", "panel", "code-ground", "block-cursor-background")
PAIRS = [(text, ground) for text in TEXT for ground in GROUNDS]
PAIRS += [("foreground", f"{name}-selection-background") for name in ("input", "screen")]  # its text has one colour


def colour(theme: Theme, name: str) -> Color:
    return Color.parse(theme.variables.get(name) or getattr(theme, name))


def luminance(c: Color) -> float:
    """Relative luminance of WCAG 2.1."""
    parts = [x / 255 for x in c.rgb]
    r, g, b = (x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_contrast(theme):
    found = {}
    for pair in PAIRS:
        high, low = sorted((luminance(colour(theme, name)) for name in pair), reverse=True)
        found[pair] = (high + 0.05) / (low + 0.05)
    assert {pair: round(ratio, 2) for pair, ratio in found.items() if ratio < 4.5} == {}
