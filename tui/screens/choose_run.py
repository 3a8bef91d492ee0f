"""ChooseRunScreen: which saved run of the bench screen to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localinfer.tui.bench_runs import SavedRun
from localinfer.tui.widgets.dialog_keys import DialogKeys


class ChooseRunScreen(ModalScreen[int]):
    """Dismissed with the number of the run, -1 for none of them, None for Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "cancel")]

    def __init__(self, runs: Sequence[SavedRun]) -> None:
        super().__init__()
        self.runs = runs

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large"):
            yield Static("Compare with which run?", classes="dialog-text")
            yield OptionList(*(Option(_label(run)) for run in self.runs), Option("none of them"), compact=True)
            yield DialogKeys(("enter", "Enter", "takes it"), ("escape", "Esc", "closes"))

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index if event.option_index < len(self.runs) else -1)


def _label(run: SavedRun) -> Content:
    """When, the KV types, and the range of its decode rates."""
    rates = [row.tok_s for row in run.rows if row.kind == "decode"]
    decode = f"decode {min(rates):.1f} .. {max(rates):.1f} tok/s" if rates else "no decode"
    types = ", ".join(sorted({row.kv for row in run.rows}))
    facts = f"  {types} · {decode} · to depth {max(row.depth for row in run.rows)}"
    return Content.assemble(run.when, (facts, "$muted"))
