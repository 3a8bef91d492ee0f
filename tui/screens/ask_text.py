"""AskTextScreen: one line of text."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from localinfer.tui.widgets.dialog_keys import DialogKeys


class AskTextScreen(ModalScreen[str]):
    """Dismissed with the text, or with '' for Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", "cancel")]

    def __init__(self, question: str, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self.question, self.value, self.placeholder = question, value, placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog small"):
            yield Static(Content(self.question), classes="dialog-text")
            yield Input(self.value, placeholder=self.placeholder, compact=True)
            if self.placeholder:
                yield Static(Content(f"e.g. {self.placeholder}"), classes="dialog-example")
            yield DialogKeys(("enter", "Enter", "goes on"), ("escape", "Esc", "closes"))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())
