"""The two themes of the app: quiet grounds, one blue for what is ours, one amber for what is going on. And the styles
that have their colours."""

from __future__ import annotations

from textual.css.stylesheet import Stylesheet
from textual.theme import Theme

DARK = Theme(
    name="localinfer-dark", dark=True, primary="#82aaff", secondary="#8b93a7", accent="#e5b567", foreground="#d5d9e2",
    background="#15171c", surface="#1b1e25", panel="#242832", success="#9bc27c", warning="#e5c07b", error="#ef8990",
    variables={
        "muted": "#959db0", "faint": "#4a5160", "code-ground": "#1d212a", "code-word": "#c39ae6",
        "footer-key-foreground": "#e5b567", "footer-description-foreground": "#959db0", "footer-background": "#15171c",
        "block-cursor-background": "#2a344d", "block-cursor-foreground": "#d5d9e2", "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#242832", "border": "#5b7fd0", "border-blurred": "#454d5e",
        "input-selection-background": "#37496f", "screen-selection-background": "#37496f",
        "screen-selection-foreground": "#d5d9e2", "scrollbar": "#343a47", "scrollbar-background": "#15171c",
        "scrollbar-corner-color": "#15171c", "scrollbar-hover": "#4a5160", "scrollbar-active": "#5b7fd0",
        "scrollbar-background-hover": "#15171c", "scrollbar-background-active": "#15171c",
    },
)  # fmt: skip

LIGHT = Theme(
    name="localinfer-light", dark=False, primary="#2c5fb3", secondary="#5a606e", accent="#955009", foreground="#262a33",
    background="#fbfaf7", surface="#f3f1ec", panel="#e8e5de", success="#386b2c", warning="#7d5700", error="#b4323b",
    variables={
        "muted": "#5a606e", "faint": "#b9b6ae", "code-ground": "#f1efe9", "code-word": "#7a3fa8",
        "footer-key-foreground": "#955009", "footer-description-foreground": "#5a606e", "footer-background": "#fbfaf7",
        "block-cursor-background": "#d7e2f7", "block-cursor-foreground": "#262a33", "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#e8e5de", "border": "#2c5fb3", "border-blurred": "#bdb9af",
        "input-selection-background": "#bdd0f2", "screen-selection-background": "#bdd0f2",
        "screen-selection-foreground": "#262a33", "scrollbar": "#d3d0c8", "scrollbar-background": "#fbfaf7",
        "scrollbar-corner-color": "#fbfaf7", "scrollbar-hover": "#b9b6ae", "scrollbar-active": "#2c5fb3",
        "scrollbar-background-hover": "#fbfaf7", "scrollbar-background-active": "#fbfaf7",
    },
)  # fmt: skip


class Styles(Stylesheet):
    """Textual lets all styles be read anew for every screen that is shown for the first time, the first one included
    (50 ms). Here they are when the colours are others than before."""

    _are_new = True

    def set_variables(self, variables: dict[str, str]) -> None:
        self._are_new = variables != self._variables
        if self._are_new:
            super().set_variables(variables)

    def reparse(self) -> None:
        if self._are_new:
            super().reparse()
