"""ConversationsScreen: the saved conversations, searched as one types; Enter opens, keys rename, pin, delete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localinfer.errors import LocalinferError
from localinfer.history import SavedConversation
from localinfer.history_store import ConversationInfo, HistoryStore
from localinfer.tui.hints import complaint
from localinfer.tui.markdown.rows import visible
from localinfer.tui.screens.ask_text import AskTextScreen
from localinfer.tui.screens.confirm import ConfirmScreen
from localinfer.tui.widgets.dialog_keys import DialogKeys

if TYPE_CHECKING:
    from localinfer.tui.app import LocalinferApp

SEARCH_DELAY_S = 0.12
WIDE = 60  # cells of a line that has room for the number of messages


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
            yield Static("", id="chats-none")
            yield DialogKeys(
                ("enter", "Enter", "opens"), ("f5", "F5", "pins"), ("f6", "F6", "renames"), ("f8", "Del", "deletes"),
                ("escape", "Esc", "closes"),
            )  # fmt: skip

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
        options.add_options([Option(self._label(info), info.id) for info in infos])
        if infos:
            options.highlighted = 0
        self.query_one("#chats-none", Static).display = not infos
        said = "Nothing found." if query else "No conversations yet: each is saved as it is written."
        self.query_one("#chats-none", Static).update(said)
        options.display = bool(infos)

    def _label(self, info: ConversationInfo) -> Content:
        return label(info, info.id == self.current, self._line_cells)

    @property
    def _line_cells(self) -> int:
        """Cells of a line: what the dialog leaves of the window, less its frame, margins and scrollbar."""
        short = self.has_class("-short")
        return min(90, int(self.app.size.width * 0.96)) - (7 if short else 9)

    def on_resize(self) -> None:
        options = self.query_one(OptionList)
        for index, option in enumerate(options.options):
            options.replace_option_prompt_at_index(index, self._label(self.infos[option.id or ""]))

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
            self.notify(complaint(error), severity="error", markup=False)
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
            self.notify(complaint(error), severity="error", markup=False)
        self.search(self.query_one(Input).value)


def label(info: ConversationInfo, current: bool, width: int) -> Content:
    """Title, how many messages, when: in columns. Where a search hit, what is there on a second line."""
    sign = "● " if current else "★ " if info.pinned else "  "
    n_messages = f"{info.n_messages:>6} message{'s' if info.n_messages != 1 else ' '}" if width >= WIDE else ""
    facts = f"{n_messages}  {_when(info.updated, time.time()):>10}"
    room = max(10, width - len(facts))
    title = Content(sign + visible(info.title)).truncate(room, ellipsis=True, pad=True)
    line = Content.assemble(title, (facts, "$muted"))
    if not info.excerpt:
        return line
    excerpt = Content.styled("    " + visible(info.excerpt), "$muted italic").truncate(width, ellipsis=True)
    return Content("\n").join([line, excerpt])


def _when(updated: float, now: float) -> str:
    """The time for today's, the day for this year's, else the date."""
    then, today = time.localtime(updated), time.localtime(now)
    same_day = then[:3] == today[:3]
    return time.strftime("%H:%M" if same_day else "%d %b" if then[0] == today[0] else "%Y-%m-%d", then)
