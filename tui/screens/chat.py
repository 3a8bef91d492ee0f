"""ChatScreen: the conversation, the composer and the state of the model. Where people spend their time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static, TextArea

from localinfer.errors import LocalinferError
from localinfer.history import ChatMessage
from localinfer.settings import Settings
from localinfer.tui.attachments import attach
from localinfer.tui.bridge import (
    EngineStatus,
    ModelFailed,
    ModelLoading,
    ModelOpened,
    Prompt,
    TurnDone,
    TurnEnded,
    TurnFailed,
    TurnNotice,
    TurnReading,
    TurnText,
)
from localinfer.tui.commands import BY_NAME, parse_command
from localinfer.tui.completion import Completion
from localinfer.tui.markdown.code import warm_up
from localinfer.tui.screens.chat_commands import ChatCommands
from localinfer.tui.session import ChatSession, model_name
from localinfer.tui.widgets.completion_menu import CompletionMenu
from localinfer.tui.widgets.composer import Composer
from localinfer.tui.widgets.memory_bar import MemoryBar
from localinfer.tui.widgets.message_view import MessageView
from localinfer.tui.widgets.status_bar import StatusBar, StatusLine, limit_words, paging_words
from localinfer.tui.widgets.top_bar import TopBar
from localinfer.tui.widgets.transcript import Transcript
from localinfer.tui.widgets.tree_panel import TreePanel

if TYPE_CHECKING:
    from localinfer.tui.app import LocalinferApp

STATUS_EACH_S = 0.25  # no eye follows more, and drawing above and below the composer means drawing that too
NOTICE_ID = -1  # of views that are not part of the conversation
NOT_STARTED = TurnFailed(0, "no model is open", "", 6)  # why was said before, or the user stopped it


class ChatScreen(ChatCommands, Screen[None]):
    """Sends, shows what streams back, and offers the commands of ChatCommands."""

    AUTO_FOCUS = "Composer"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "stop"),
        Binding("ctrl+n", "command('new')", "new"),
        Binding("ctrl+r", "command('regenerate')", "again"),
        Binding("ctrl+up", "browse", "browse", key_display="^↑"),
        Binding("ctrl+b", "command('chats')", "chats"),
        Binding("ctrl+g", "command('tree')", "tree"),
        Binding("ctrl+t", "command('think')", "thinking", show=False),
        Binding("ctrl+o", "command('models')", "models"),
        Binding("f2", "command('plan')", "plan"),
        Binding("f3", "command('bench')", "bench", show=False),
        Binding("f4", "external_editor", "$EDITOR", show=False),
        Binding("f1", "command('help')", "help"),
        Binding("pageup", "page(-1)", "scroll up", show=False, priority=True),
        Binding("pagedown", "page(1)", "scroll down", show=False, priority=True),
        Binding("ctrl+end", "follow", "to the end", show=False, priority=True),
    ]
    app: LocalinferApp

    def __init__(self, session: ChatSession, settings: Settings | None = None) -> None:
        super().__init__(id="chat")
        self.settings = settings or Settings()
        self.session = session
        self.views: dict[int, MessageView] = {}
        self.editing: int | None = None  # the message that the composer's text will replace
        self._answer: MessageView | None = None  # the one that streams
        self._stopping = False
        self._prompt_tokens = 0
        self._status_at = 0.0  # when the figures were shown last
        self._disk_forecast = 0.0  # bytes/s that streamed weights were planned with

    def compose(self) -> ComposeResult:
        yield TopBar()
        with Horizontal(id="middle"):
            with Vertical(id="column"):
                with Container(id="stage"):
                    with Vertical(id="welcome"):
                        yield Static("localinfer", id="welcome-name")
                        yield Static("", id="welcome-model")
                        yield Static("Enter sends · / commands · @ attaches a file · F1 help", id="welcome-more")
                    yield Transcript(self.settings.text_width)
                    with Container(id="badge"):
                        yield Static("")
                with Vertical(id="bottom"):
                    yield CompletionMenu()
                    yield Composer()
                    yield StatusBar()
                    if self.settings.memory_bar:
                        yield MemoryBar()
            yield TreePanel()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.transcript = self.query_one(Transcript)
        self.composer = self.query_one(Composer)
        self.status_bar = self.query_one(StatusBar)
        self.completion = Completion(self.composer, self.query_one(CompletionMenu))
        self.show_conversation()

    # the conversation on screen

    def show_conversation(self, keep_position: bool = False) -> None:
        """Show the branch that the conversation's leaf is on."""
        path = self.session.conversation.path()
        self.views = {message.id: self.view_of(message) for message in path}
        self.transcript.show(list(self.views.values()), keep_position)
        self.composer.remember([m.text for m in path if m.role == "user"])
        self._show_title()
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
                message.id, message.role, name, message.text, message.thinking, message.state, _note(message), branch
            )
        view.branch = branch
        return view

    def _show_title(self) -> None:
        conversation = self.session.conversation
        self.query_one(TopBar).title_text = ("★ " if conversation.pinned else "") + conversation.shown_title
        empty = not self.transcript.views
        self.query_one("#welcome").display = empty
        self.transcript.display = not empty

    def add_notice(self, text: str, hint: str = "") -> None:
        """Something that went wrong, in the flow of the conversation (it is not part of it, and not saved)."""
        view = MessageView(NOTICE_ID, "notice", "Problem", text + (f"\n{hint}" if hint else ""))
        self.transcript.append(view)
        self._show_title()

    # sending

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        command = parse_command(event.text)
        if command is not None:
            self.run_command(*command)
        else:
            self.send(event.text)

    def send(self, text: str) -> None:
        """The user's message, as a new branch where one is being edited; then the answer."""
        if self.session.turn is not None:
            self.composer.put(text)
            self.notify("The answer is still being written: Esc stops it.")
            return
        if not self.app.model_path:
            self.composer.put(text)
            self.command_models("")
            return
        try:
            text, attached = attach(text)
        except LocalinferError as error:
            self.composer.put(text)
            self.notify(error.message, severity="error")
            return
        for attachment in attached:
            self.notify(f"attached {attachment.name} (about {attachment.n_tokens} tokens)", markup=False)
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
        """Let the model answer; `going_on` is the answer that it shall continue."""
        session = self.session
        message = session.continue_answer(going_on) if going_on else session.begin_answer(parent)
        prompt = session.prompt(message.id if going_on else message.parent)
        self.show_conversation()
        self._answer = self.views[message.id]
        self._stopping = False
        self.set_status(state="reading", detail="", fraction=0.0, decode_tok_s=0.0)
        self._report_disk()
        self.run_worker(self._turn(prompt), group="turn")
        self.run_worker(warm_up, group="warm-up", thread=True)  # while the prompt is read

    async def _turn(self, prompt: list[Prompt]) -> None:
        if await self.app.ensure_model():
            await self.app.bridge.chat(prompt, self.session.params, conversation=self.session.conversation.id)
        else:
            self.post_message(TurnEnded(NOT_STARTED))

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
        when_full = "then the oldest turns go" if self.app.options.context_full == "drop" else "then it stops"
        self.status_bar.line = StatusLine(
            "ready", context_limit=status.ctx, when_full=when_full, memory_bytes=status.peak_bytes
        )
        for notice in status.notices:
            self.notify(notice, markup=False)

    def _take_plan(self, plan: Any) -> None:
        self._disk_forecast = _disk_forecast(plan)
        for bar in self.query(MemoryBar):
            bar.plan = plan

    def on_model_failed(self, event: ModelFailed) -> None:
        self.set_status(state="failed", detail="", fraction=0.0)
        self.add_notice(event.message, event.hint)
        self.app.model_failed(event)

    def on_turn_reading(self, event: TurnReading) -> None:
        self._prompt_tokens = event.total
        if not self._stopping:
            fraction = event.done / max(event.total, 1)
            self.set_status(state="reading", detail=f"{event.done}/{event.total}", fraction=fraction)

    def on_turn_text(self, event: TurnText) -> None:
        view, turn = self._answer, self.session.turn
        if view is None or turn is None or turn.stopped:
            return
        self.session.grow(event.answer, event.thinking)
        view.thinking_s = turn.thinking_s
        self.transcript.feed(view, event.answer, event.thinking)
        if self.status_bar.line.state != "writing" or time.monotonic() - self._status_at > STATUS_EACH_S:
            self._status_at = time.monotonic()
            used = self._prompt_tokens + event.n_tokens
            self.set_status(state="writing", detail="", fraction=0.0, decode_tok_s=event.tok_s, context_used=used)

    def on_turn_notice(self, event: TurnNotice) -> None:
        self.notify(event.text, markup=False)
        if event.plan is not None:
            self._take_plan(event.plan)
            self.set_status(paging=limit_words(event.plan), disk_is_slow=True)

    async def on_turn_ended(self, event: TurnEnded) -> None:
        view, self._answer = self._answer, None
        message = self.session.end(event.event)
        if view is not None and message is not None:
            view.finish(message.state, _note(message))
            self.transcript.changed(view)
        elif view is not None:
            self.transcript.drop(view)
            self._show_title()
        if isinstance(event.event, TurnFailed):
            self._turn_failed(event.event, await self.app.check_engine())
        else:
            self._turn_done(event.event)
        self._report_disk()

    def _turn_done(self, event: TurnDone) -> None:
        stats = event.stats
        paging, slow = paging_words(stats.paging, stats.generated_tokens, self._disk_forecast)
        self.set_status(
            state="ready", paging=paging, disk_is_slow=slow, detail="", fraction=0.0,
            context_used=stats.context_used, context_limit=stats.context_limit,
            cached_tokens=stats.cached_tokens, prompt_tokens=stats.prompt_tokens, prefill_tok_s=stats.prefill_tok_s,
            decode_tok_s=stats.decode_tok_s, ttft_s=stats.ttft_s, draft_gain=stats.draft_gain,
            memory_bytes=stats.memory.peak_bytes or self.status_bar.line.memory_bytes,
        )  # fmt: skip

    def _turn_failed(self, event: TurnFailed, alive: bool) -> None:
        if event == NOT_STARTED:
            return
        self.set_status(state="ready" if alive else "failed", detail="", fraction=0.0)
        again = "" if alive else "Ctrl+R loads the model again and repeats the question; nothing was lost."
        self.add_notice(event.message, "\n".join(part for part in (event.hint, again) if part))

    def _report_disk(self) -> None:
        error = self.session.conversation.write_error
        if error:
            self.notify(f"not saved: {error}. It is tried again with the next message.", severity="error", markup=False)

    def set_status(self, **changes: Any) -> None:
        line = self.status_bar.line = replace(self.status_bar.line, **changes)
        for bar in self.query(MemoryBar):
            bar.context = (line.context_used, line.context_limit)

    # keys

    async def action_escape(self) -> None:
        if self.editing is not None:
            self.leave_edit()
            self.composer.put("")
        elif self.session.turn is not None:
            await self.stop()
        else:
            self.transcript.action_follow()
        self.composer.focus()

    async def stop(self) -> None:
        """Freeze the answer now; the engine follows when it comes to its next token or chunk."""
        turn = self.session.turn
        if turn is None or turn.stopped:
            return
        turn.stopped = self._stopping = True
        if self._answer:
            self._answer.finish("cancelled")
            self.transcript.changed(self._answer)
        if self.app.bridge.busy:
            self.set_status(state="stopping", detail="", fraction=0.0)
            await self.app.bridge.cancel()
        else:  # still waiting for the model to load
            self.workers.cancel_group(self, "turn")
            self.post_message(TurnEnded(NOT_STARTED))

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
        badge.query_one(Static).update(f"↓ {event.n_below} more  End" if event.n_below else "↓ End")

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

    @on(TreePanel.Left)
    def _tree_left(self) -> None:
        self.run_command(BY_NAME["tree"], "")

    # completion

    @on(TextArea.Changed)
    def _typed(self, event: TextArea.Changed) -> None:
        self.completion.show()

    @on(Composer.MenuKey)
    def _menu_key(self, event: Composer.MenuKey) -> None:
        self.completion.take(event.key)


def _note(message: ChatMessage) -> str:
    """Beside the name of an answer: how long it is and how fast it came."""
    stats = message.stats
    rate = stats.get("decode_tok_s") or 0.0
    n = stats.get("generated_tokens") or 0
    return "  ".join(part for part in (f"{rate:.1f} tok/s" if rate else "", f"{n} tokens" if n else "") if part)


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
