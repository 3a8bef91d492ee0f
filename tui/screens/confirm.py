"""ConfirmScreen: one question, y or n. Enter does nothing, so that a slip deletes nothing."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localinfer.tui.widgets.dialog_keys import DialogKeys


class ConfirmScreen(ModalScreen[bool]):
    """Dismissed with True for y, False for n or Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape", "answer(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog small"):
            yield Static(Content(self.question), classes="dialog-text")
            yield DialogKeys(("y", "y", "yes"), ("n", "n", "no"))

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)
