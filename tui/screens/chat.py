"""ChatScreen: the conversation, the composer and the state of the model. Where people spend their time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static, TextArea

from localinfer.errors import LocalinferError
from localinfer.history import ChatMessage
from localinfer.records import replace
from localinfer.settings import Settings
from localinfer.tui.answering import Answering, note_of, when_full
from localinfer.tui.attachments import attach, attached_words
from localinfer.tui.bridge import (
    EngineStatus,
    ModelFailed,
    ModelLoading,
    ModelOpened,
    TurnEnded,
    TurnNotice,
    TurnReading,
    TurnText,
)
from localinfer.tui.commands import BY_NAME, parse_command
from localinfer.tui.completion import Completion
from localinfer.tui.hints import complaint, in_app_words, sentence
from localinfer.tui.markdown.blocks import warm_up
from localinfer.tui.screens.chat_commands import ChatCommands
from localinfer.tui.session import ChatSession, model_name
from localinfer.tui.widgets.completion_menu import CompletionMenu
from localinfer.tui.widgets.composer import Composer
from localinfer.tui.widgets.grounds import Columns, Layers, Rows, ground_lines
from localinfer.tui.widgets.key_bar import KeyBar
from localinfer.tui.widgets.memory_bar import MemoryBar
from localinfer.tui.widgets.message_view import MessageView
from localinfer.tui.widgets.status_bar import StatusBar, StatusLine, limit_words
from localinfer.tui.widgets.top_bar import TopBar
from localinfer.tui.widgets.transcript import Transcript
from localinfer.tui.widgets.tree_panel import TreePanel

if TYPE_CHECKING:
    from localinfer.tui.app import LocalinferApp

SAVE_AGAIN_S = 5.0  # what a full disk refused
NOTICE_S = 20.0  # what is said of a model when it is loaded: often why it is slow
COUNT_DELAY_S = 0.2  # after the last key
TRY_ANOTHER = "Ctrl+R tries again, Ctrl+O lists the models."
NOTICE_ID = -1  # of views that are not part of the conversation


class ChatScreen(ChatCommands, Screen[None]):
    """Sends, shows what streams back, and offers the commands of ChatCommands."""

    AUTO_FOCUS = "Composer"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "command('help')", "help"),
        Binding("escape", "stop_answer", "stop"),
        Binding("escape", "escape", "back", show=False),
        Binding("ctrl+n", "command('new')", "new"),
        Binding("ctrl+r", "command('regenerate')", "again"),
        Binding("ctrl+up", "browse", "browse", key_display="^↑"),
        Binding("ctrl+b", "command('chats')", "chats"),
        Binding("ctrl+o", "command('models')", "models"),
        Binding("ctrl+g", "command('tree')", "tree"),
        Binding("f2", "command('plan')", "plan"),
        Binding("ctrl+t", "command('think')", "thinking", show=False),
        Binding("f3", "command('bench')", "bench", show=False),
        Binding("f4", "external_editor", "$EDITOR", show=False),
        Binding("pageup", "page(-1)", "scroll up", show=False, priority=True),
        Binding("pagedown", "page(1)", "scroll down", show=False, priority=True),
        Binding("ctrl+end", "follow", "to the end", show=False, priority=True),
    ]
    app: LocalinferApp
    render_lines = ground_lines

    def __init__(self, session: ChatSession, settings: Settings | None = None) -> None:
        super().__init__(id="chat")
        self.settings = settings or Settings()
        self.session = session
        self.views: dict[int, MessageView] = {}
        self.editing: int | None = None  # the message that the composer's text will replace
        self.answering = Answering(self)

    def compose(self) -> ComposeResult:
        yield TopBar()
        with Columns(id="middle"):
            with Rows(id="column"):
                with Layers(id="stage"):
                    with Rows(id="welcome"):
                        yield Static("localinfer", id="welcome-name")
                        yield Static("", id="welcome-model")
                        yield Static("Enter sends · / commands · @ attaches a file · F1 help", id="welcome-more")
                    yield Transcript(self.settings.text_width)
                    with Container(id="badge"):
                        yield Static("")
                with Rows(id="bottom"):
                    yield CompletionMenu()
                    yield Composer()
                    yield StatusBar()
                    yield MemoryBar(classes="" if self.settings.memory_bar else "-unwanted")
            yield TreePanel()
        yield KeyBar()

    def on_mount(self) -> None:
        self.transcript = self.query_one(Transcript)
        self.composer = self.query_one(Composer)
        self.status_bar = self.query_one(StatusBar)
        self.memory_bar = self.query_one(MemoryBar)
        self.completion = Completion(self.composer, self.query_one(CompletionMenu))
        self.show_conversation()
        if not self.app.model_path:
            self.query_one("#welcome-model", Static).update("No model is loaded: Ctrl+O lists them.")
        self.set_interval(SAVE_AGAIN_S, self._save_again)

    def take_settings(self, settings: Settings) -> None:
        self.settings = settings
        self.memory_bar.set_class(not settings.memory_bar, "-unwanted")
        self.transcript.set_max_width(settings.text_width)

    # the conversation on screen

    def show_conversation(self, keep_position: bool = False) -> None:
        """Show the branch that the conversation's leaf is on."""
        path = self.session.conversation.path()
        self.views = {message.id: self.view_of(message) for message in path}
        self.transcript.show(list(self.views.values()), keep_position)
        self.composer.remember([m.text for m in path if m.role == "user"])
        self.show_title()
        tree = self.query_one(TreePanel)
        if tree.display:
            tree.show(self.session.conversation)

    def view_of(self, message: ChatMessage) -> MessageView:
        """The view of a message, the one that is there already where it can be."""
        siblings = self.session.conversation.siblings(message.id)
        branch = (siblings.index(message.id) + 1, len(siblings))
        view = self.views.get(message.id)
        if view is None or (view.text, view.state) != (message.text, message.state):
            name = "You" if message.role == "user" else message.model or message.role.capitalize()
            view = MessageView(
                message.id, message.role, name, message.text, message.thinking, message.state, note_of(message), branch
            )
        view.branch = branch
        return view

    def show_title(self) -> None:
        conversation = self.session.conversation
        self.query_one(TopBar).title_text = ("★ " if conversation.pinned else "") + conversation.shown_title
        empty = not self.transcript.views
        self.query_one("#welcome").display = empty
        self.transcript.display = not empty

    def add_notice(self, text: str, hint: str = "") -> None:
        """Something that went wrong, in the flow of the conversation (it is not part of it, and not saved)."""
        lines = [sentence(line) for line in f"{text}\n{hint}".split("\n") if line]
        view = MessageView(NOTICE_ID, "notice", "Problem", "\n".join(lines))
        self.transcript.append(view)
        self.show_title()

    # sending

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        command = parse_command(event.text)
        if command is not None:
            self.run_command(*command)
        else:
            self.send(event.text)

    def send(self, text: str) -> None:
        """The user's message, as a new branch where one is being edited; then the answer. Or an answer reworded."""
        edited = self.session.conversation.messages.get(self.editing or 0)
        if edited is not None and edited.role != "user":
            self.reword(edited.id, text)
            return
        if self.session.turn is not None:
            self.composer.put(text)
            self.notify("The answer is still being written: Esc stops it.")
            return
        if not self.app.model_path:
            self.composer.put(text)
            self.command_models("")
            return
        try:
            text, _ = attach(text)
        except LocalinferError as error:
            self.composer.put(text)
            self.notify(complaint(error), severity="error", markup=False)
            return
        self.session.say(text, self._parent_of_edit())
        self.leave_edit()
        self.show_conversation()
        self.start_answer()

    def _parent_of_edit(self) -> int | None:
        conversation = self.session.conversation
        if self.editing is not None:
            return conversation.messages[self.editing].parent
        leaf = conversation.messages.get(conversation.leaf)
        if leaf is not None and leaf.role == "assistant" and not leaf.text:  # an answer that came to nothing
            leaf = conversation.messages.get(leaf.parent)
        return leaf.parent if leaf and leaf.role == "user" else None  # an unanswered message: say it otherwise

    def start_answer(self, parent: int | None = None, going_on: ChatMessage | None = None) -> None:
        self.answering.begin(parent, going_on)

    @work(group="turn")
    async def take_turn(self, turn: Callable[[], Awaitable[None]]) -> None:
        await turn()

    # what comes back

    def on_model_loading(self, event: ModelLoading) -> None:
        self.set_status(state="loading", detail=event.text, fraction=event.fraction)

    def on_model_opened(self, event: ModelOpened) -> None:
        status = event.status
        self.session.model = model_name(status.path, status.model)
        self.query_one(TopBar).model_text = f"{self.session.model} {status.quant}".strip()
        self.composer.placeholder = f"Message {self.session.model}"
        self.query_one("#welcome-model", Static).update(Content(_model_line(status)))
        self._take_plan(status.plan)
        self.status_bar.line = StatusLine(
            "ready", context_limit=status.ctx, memory_bytes=status.peak_bytes,
            when_full=when_full(self.app.options.context_full, self.session.next_to_go(0)),
            unsaved=self.session.conversation.write_error,
        )  # fmt: skip
        self.run_worker(warm_up, group="warm-up", thread=True)  # while the question is written
        for notice in status.notices:
            self.notify(notice, markup=False, timeout=NOTICE_S)

    def _take_plan(self, plan: Any) -> None:
        self.answering.disk_forecast = _disk_forecast(plan)
        self.memory_bar.plan = plan

    def on_model_failed(self, event: ModelFailed) -> None:
        self.status_bar.line = StatusLine("failed", unsaved=self.session.conversation.write_error)
        self.memory_bar.plan = None
        self.add_notice(event.message, "\n".join(filter(None, (in_app_words(event.hint), TRY_ANOTHER))))
        self.app.model_failed(event)

    def on_turn_reading(self, event: TurnReading) -> None:
        self.answering.reading(event)

    def on_turn_text(self, event: TurnText) -> None:
        self.answering.text(event)

    def on_turn_notice(self, event: TurnNotice) -> None:
        self.notify(in_app_words(event.text), markup=False)
        if event.plan is not None:
            self._take_plan(event.plan)
            self.set_status(paging=limit_words(event.plan), disk_is_slow=True)

    async def on_turn_ended(self, event: TurnEnded) -> None:
        await self.answering.ended(event.event)

    def report_disk(self) -> None:
        """Say once that the disk refuses, and keep saying it in the status until it does not."""
        error = self.session.conversation.write_error
        if error and not self.status_bar.line.unsaved:
            self.notify(f"Not saved: {error}. It is tried again every few seconds.", severity="error", markup=False)
        if error != self.status_bar.line.unsaved:
            self.set_status(unsaved=error)

    def _save_again(self) -> None:
        if self.session.conversation.write_error:
            self.session.conversation.retry()
            self.report_disk()

    def set_status(self, **changes: Any) -> None:
        line = self.status_bar.line = replace(self.status_bar.line, **changes)
        self.memory_bar.context = (line.context_used, line.context_limit)

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc stops an answer, where one is being written; else it leads back to the composer."""
        if action == "stop_answer":
            return self.session.turn is not None and self.editing is None
        return super().check_action(action, parameters)

    async def action_stop_answer(self) -> None:
        await self.stop()
        self.composer.focus()

    def action_escape(self) -> None:
        if self.editing is not None:
            self.leave_edit()
            self.composer.put("")
        else:
            self.transcript.action_follow()
        self.composer.focus()

    async def stop(self) -> None:
        await self.answering.stop()

    def action_browse(self) -> None:
        if self.transcript.views:
            self.transcript.focus()

    def action_page(self, step: int) -> None:
        height = max(1, self.transcript.size.height - 2)
        self.transcript.scroll_to(y=self.transcript.scroll_offset.y + step * height, animate=False)

    def action_follow(self) -> None:
        self.transcript.action_follow()

    def action_command(self, name: str) -> None:
        self.run_command(BY_NAME[name], "")

    def action_external_editor(self) -> None:
        self.edit_externally()

    def leave_edit(self) -> None:
        self.editing = None
        self.composer.border_title = ""

    # browsing

    @on(Transcript.FollowChanged)
    def _follow_changed(self, event: Transcript.FollowChanged) -> None:
        badge = self.query_one("#badge")
        badge.display = not event.following
        badge.query_one(Static).update(f"↓ {event.n_below:,} more · End" if event.n_below else "↓ End")

    @on(Transcript.Sibling)
    def _sibling(self, event: Transcript.Sibling) -> None:
        self.step_sibling(event.message_id, event.step)

    @on(Transcript.Request)
    def _request(self, event: Transcript.Request) -> None:
        if event.message_id != NOTICE_ID:
            self.on_message(event.verb, event.message_id)

    @on(TreePanel.Chosen)
    def _branch_chosen(self, event: TreePanel.Chosen) -> None:
        self.show_branch(event.message_id)
        self.uncover()

    @on(TreePanel.Left)
    def _tree_left(self) -> None:
        self.run_command(BY_NAME["tree"], "")

    @on(Composer.AtEnd)
    def _at_end(self) -> None:
        self.transcript.action_follow()

    # completion

    @on(TextArea.Changed)
    def _typed(self, event: TextArea.Changed) -> None:
        self.completion.show()
        if "@" in self.composer.text or self.composer.border_subtitle not in ("", self._key_of_help):
            self._count_attached()

    @work(group="attached", exclusive=True)
    async def _count_attached(self) -> None:
        """Below the composer: which files will be sent, and how many tokens they are."""
        await asyncio.sleep(COUNT_DELAY_S)
        words = await attached_words(self.composer.text, self.app.bridge.count_tokens)
        self.composer.border_subtitle = words or self._key_of_help

    @property
    def _key_of_help(self) -> str:
        """Where the window is too low for the line of keys, the one that shows them all."""
        return "F1 help" if self.has_class("-short") else ""

    def on_resize(self) -> None:
        if not self.composer.border_subtitle or self.composer.border_subtitle == "F1 help":
            self.composer.border_subtitle = self._key_of_help

    @on(Composer.MenuKey)
    def _menu_key(self, event: Composer.MenuKey) -> None:
        self.completion.take(event.key)


def _disk_forecast(plan: Any) -> float:
    """Bytes/s that a plan streams weights with; 0 where it streams none."""
    paging = getattr(plan, "paging", None)
    return plan.budget.link_bytes_s or 0.0 if paging is not None and paging.streamed else 0.0


def _model_line(status: EngineStatus) -> str:
    parts = [
        model_name(status.path, status.model),
        status.quant,
        status.backend,
        f"{status.ctx} tokens of context" if status.ctx else "",
    ]
    if not status.has_template:
        parts.append("no chat template: it continues text")
    return " · ".join(part for part in parts if part)
