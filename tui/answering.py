"""Answering: what comes back while an answer is written, for the session, which saves it, and for the screen."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from localinfer.history import ChatMessage
from localinfer.tui.bridge import (
    Prompt,
    TurnDone,
    TurnEnded,
    TurnFailed,
    TurnReading,
    TurnStats,
    TurnText,
)
from localinfer.tui.hints import in_app_words
from localinfer.tui.widgets.message_view import MessageView
from localinfer.tui.widgets.status_bar import paging_words

if TYPE_CHECKING:
    from localinfer.tui.screens.chat import ChatScreen

STATUS_EACH_S = 0.5  # no eye follows more, and drawing above and below the composer means drawing that too
NOT_STARTED = TurnFailed(0, "no model is open", "", 6)  # why was said before, or the user stopped it
LOAD_AGAIN = "Ctrl+R loads the model again and repeats the question; F2 shows what needs less memory. Nothing was lost."


class Answering:
    """One turn at a time; `view` is the message that grows, None between turns."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self.view: MessageView | None = None
        self._prompt_tokens = 0
        self._status_at = 0.0  # when the figures were shown last
        self.disk_forecast = 0.0  # bytes/s that streamed weights were planned with

    def begin(self, parent: int | None = None, going_on: ChatMessage | None = None) -> None:
        """Let the model answer under `parent`; `going_on` is the answer that it shall continue."""
        screen, session = self._screen, self._screen.session
        message = session.continue_answer(going_on) if going_on else session.begin_answer(parent)
        prompt = session.prompt(message.id if going_on else message.parent)
        screen.show_conversation()
        self.view = screen.views[message.id]
        screen.set_status(state="reading", detail="", fraction=0.0, decode_tok_s=0.0)
        screen.report_disk()
        screen.refresh_bindings()
        screen.take_turn(partial(self._turn, prompt))

    async def _turn(self, prompt: list[Prompt]) -> None:
        screen = self._screen
        if await screen.app.ensure_model():
            session = screen.session
            await screen.app.bridge.chat(prompt, session.params, **session.turn_settings)
        else:
            screen.post_message(TurnEnded(NOT_STARTED))

    def reading(self, event: TurnReading) -> None:
        self._prompt_tokens = event.total
        turn = self._screen.session.turn
        if turn is not None and not turn.stopped:
            fraction = event.done / max(event.total, 1)
            self._screen.set_status(state="reading", detail=f"{event.done}/{event.total}", fraction=fraction)

    def text(self, event: TurnText) -> None:
        screen, view, turn = self._screen, self.view, self._screen.session.turn
        if view is None or turn is None or turn.stopped:
            return
        screen.session.grow(event.answer, event.thinking)
        view.thinking_s = turn.thinking_s
        screen.transcript.feed(view, event.answer, event.thinking)
        if screen.status_bar.line.state != "writing" or time.monotonic() - self._status_at > STATUS_EACH_S:
            self._show_figures(event)

    def _show_figures(self, event: TurnText) -> None:
        self._status_at = time.monotonic()
        used = self._prompt_tokens + event.n_tokens
        self._screen.set_status(state="writing", detail="", fraction=0.0, decode_tok_s=event.tok_s, context_used=used)

    async def ended(self, event: TurnDone | TurnFailed) -> None:
        screen, view = self._screen, self.view
        self.view = None
        message = screen.session.end(event)
        screen.refresh_bindings()
        if view is not None and message is not None:
            view.finish(message.state, note_of(message))
            screen.transcript.changed(view)
        elif view is not None:
            screen.transcript.drop(view)
            screen.show_title()
        if isinstance(event, TurnDone):
            screen.set_status(**self._figures(event.stats))
        elif event != NOT_STARTED:
            self._failed(event, await screen.app.check_engine())
        screen.report_disk()

    def _figures(self, stats: TurnStats) -> dict[str, Any]:
        paging, slow = paging_words(stats.paging, stats.generated_tokens, self.disk_forecast)
        screen = self._screen
        return {
            "state": "ready", "detail": "", "fraction": 0.0, "paging": paging, "disk_is_slow": slow,
            "context_used": stats.context_used, "context_limit": stats.context_limit,
            "when_full": when_full(screen.app.options.context_full, screen.session.next_to_go(stats.left_out)),
            "cached_tokens": stats.cached_tokens, "prompt_tokens": stats.prompt_tokens,
            "prefill_tok_s": stats.prefill_tok_s, "decode_tok_s": stats.decode_tok_s, "ttft_s": stats.ttft_s,
            "draft_gain": stats.draft_gain,
            "memory_bytes": stats.memory.peak_bytes or screen.status_bar.line.memory_bytes,
        }  # fmt: skip

    def _failed(self, event: TurnFailed, alive: bool) -> None:
        screen = self._screen
        screen.set_status(state="ready" if alive else "failed", detail="", fraction=0.0)
        hint = in_app_words(event.hint)
        screen.add_notice(event.message, "\n".join(filter(None, (hint, "" if alive else LOAD_AGAIN))))

    async def stop(self) -> None:
        """Freeze the answer now; the engine follows when it comes to its next token or chunk."""
        screen, turn = self._screen, self._screen.session.turn
        if turn is None or turn.stopped:
            return
        turn.stopped = True
        if self.view:
            self.view.finish("cancelled")
            screen.transcript.changed(self.view)
        if screen.app.bridge.busy:
            screen.set_status(state="stopping", detail="", fraction=0.0)
            await screen.app.bridge.cancel()
        else:  # still waiting for the model to load
            screen.workers.cancel_group(screen, "turn")
            screen.post_message(TurnEnded(NOT_STARTED))


def when_full(policy: str, next_turn: str) -> str:
    """What happens at the end of the context. `next_turn`: the first words of the oldest turn that can go."""
    return f"next to go: {next_turn}" if policy == "drop" and next_turn else "then it stops"


def note_of(message: ChatMessage) -> str:
    """Beside the name of an answer: how long it is and how fast it came."""
    stats = message.stats
    rate = stats.get("decode_tok_s") or 0.0
    n = stats.get("generated_tokens") or 0
    return "  ".join(part for part in (f"{rate:.1f} tok/s" if rate else "", f"{n} tokens" if n else "") if part)
