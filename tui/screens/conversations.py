"""ConversationsScreen: the saved conversations, searched as one types; Enter opens, keys rename, pin, delete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localinfer.errors import LocalinferError
from localinfer.history import SavedConversation
from localinfer.history_store import ConversationInfo, HistoryStore
from localinfer.tui.markdown.rows import visible
from localinfer.tui.screens.ask_text import AskTextScreen
from localinfer.tui.screens.confirm import ConfirmScreen

if TYPE_CHECKING:
    from localinfer.tui.app import LocalinferApp

SEARCH_DELAY_S = 0.12


class ConversationsScreen(ModalScreen[str]):
    """Dismissed with the id to open, or with ''."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss('')", "close"),
        Binding("down", "into_list", show=False),
        Binding("f5", "pin", "pin"),
        Binding("f6", "rename", "rename"),
        Binding("delete,f8", "delete", "delete"),
    ]
    app: LocalinferApp

    def __init__(self, store: HistoryStore, current: str) -> None:
        super().__init__()
        self.store, self.current = store, current
        self.infos: dict[str, ConversationInfo] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large"):
            yield Input(placeholder="Search conversations", compact=True)
            yield OptionList(compact=True)
            yield Static("Enter opens · F5 pins · F6 renames · Del deletes · Esc closes", classes="dialog-keys")

    def on_mount(self) -> None:
        self.search("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self.search(event.value)

    @work(group="search", exclusive=True)
    async def search(self, query: str) -> None:
        if query:
            await asyncio.sleep(SEARCH_DELAY_S)
        infos = await asyncio.to_thread(self.store.list, query)
        self.infos = {info.id: info for info in infos}
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(_label(info, info.id == self.current), info.id) for info in infos])
        options.border_title = f"{len(infos)} conversations"
        if infos:
            options.highlighted = 0

    @on(Input.Submitted)
    def _submitted(self) -> None:
        if self.chosen:
            self.dismiss(self.chosen.id)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id or "")

    @property
    def chosen(self) -> ConversationInfo | None:
        option = self.query_one(OptionList).highlighted_option
        return self.infos.get(option.id or "") if option else None

    def action_into_list(self) -> None:
        self.query_one(OptionList).focus()

    def action_pin(self) -> None:
        self._change(lambda c, info: c.pin(not info.pinned))

    def action_rename(self) -> None:
        info = self.chosen
        if info:
            dialog = AskTextScreen("New title", info.title)
            self.app.push_screen(dialog, lambda title: self._change(lambda c, _: c.rename(title)) if title else None)

    def action_delete(self) -> None:
        info = self.chosen
        if info is None:
            return
        if info.id == self.current:
            self.notify("This conversation is open: start a new one first.", severity="warning")
            return
        dialog = ConfirmScreen(f"Delete “{visible(info.title)}”, {info.n_messages} messages?")
        self.app.push_screen(dialog, lambda yes: self._delete(info) if yes else None)

    def _delete(self, info: ConversationInfo) -> None:
        try:
            self.store.delete(info.id)
        except LocalinferError as error:
            self.notify(error.message, severity="error", markup=False)
        self.search(self.query_one(Input).value)

    def _change(self, change: Callable[[SavedConversation, ConversationInfo], None]) -> None:
        """Write a change to the chosen conversation: through the open one where it is that."""
        info = self.chosen
        if info is None:
            return
        try:
            if info.id == self.current:
                change(self.app.session.conversation, info)
                self.app.chat.show_conversation(keep_position=True)
            else:
                conversation = self.store.open(info.id)
                change(conversation, info)
                conversation.close()
        except LocalinferError as error:
            self.notify(error.message, severity="error", markup=False)
        self.search(self.query_one(Input).value)


def _label(info: ConversationInfo, current: bool) -> Text:
    day = _when(info.updated, time.time())
    sign = "● " if current else "★ " if info.pinned else "  "
    label = Text.assemble(
        sign, visible(info.title), (f"  {day} · {info.n_messages} message{'s' * (info.n_messages != 1)}", "dim")
    )
    if info.excerpt:
        label.append("\n    " + visible(info.excerpt), "dim italic")
    return label


def _when(updated: float, now: float) -> str:
    """The time for today's, the day for this year's, else the date."""
    then, today = time.localtime(updated), time.localtime(now)
    same_day = then[:3] == today[:3]
    return time.strftime("%H:%M" if same_day else "%d %b" if then[0] == today[0] else "%Y-%m-%d", then)
