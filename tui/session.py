"""ChatSession: a conversation and the turn that runs in it. Decides what is sent and what is saved; draws nothing."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localinfer.errors import UsageError
from localinfer.history import ROOT, ChatMessage, SavedConversation
from localinfer.history_store import HistoryStore
from localinfer.other_programs import ollama_name
from localinfer.records import dataclass, field
from localinfer.settings import THINKING
from localinfer.tui.bridge import Prompt, SamplingParams, TurnDone, TurnFailed
from localinfer.tui.markdown.rows import visible

FLUSH_S = 0.5  # streamed text reaches the disk at least this often


def model_name(path: str, own_name: str = "") -> str:
    """What to call a model: its file's name without the quantization; where that is a mere hash, Ollama's name for it
    or the file's own."""
    stem = path.rpartition("/")[2].removesuffix(".gguf")
    if re.fullmatch(r"(sha256-)?[0-9a-f]{32,}", stem):
        return ollama_name(Path(path)) or own_name or stem
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", stem)
    return re.sub(r"[.-](I?Q\d\w*|B?F\d+|TQ\d\w*|MXFP4\w*)$", "", stem, flags=re.IGNORECASE) or own_name


def first_words(text: str, cells: int = 24) -> str:
    """`“What is the capital of …”`: enough to know a message by."""
    line = " ".join(visible(text[: 4 * cells]).split())
    return f"“{line if len(line) <= cells else line[: cells - 1].rstrip() + '…'}”"


@dataclass
class Turn:
    """The answer that is being written. `stopped` when the user has seen enough of it."""

    message_id: int
    started: float = field(default_factory=time.monotonic)
    flushed: float = field(default_factory=time.monotonic)
    answer: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    thinking_s: float = 0.0
    stopped: bool = False


class ChatSession:
    """Everything about the chat but its looks."""

    def __init__(self, store: HistoryStore, params: SamplingParams, thinking: str = "auto") -> None:
        """params, thinking (one of THINKING): where a conversation sets nothing else."""
        self.store = store
        self.defaults = params
        self.thinking_default = thinking
        self.conversation: SavedConversation = store.new()
        self.turn: Turn | None = None
        self.model = ""

    # which conversation

    def start_new(self) -> None:
        """An empty conversation that keeps the system prompt and settings of this one."""
        old = self.conversation
        self.conversation = self.store.new()
        if old.system or old.params:
            self.conversation.configure(old.system, old.params)
        old.close()

    def switch_to(self, conversation: SavedConversation) -> None:
        self.conversation.close()
        self.conversation = conversation

    def close(self) -> None:
        """Save what an unfinished answer has so far, and let go of the file."""
        if self.turn is not None:
            turn, self.turn = self.turn, None
            self._flush(turn)
            self.conversation.end(turn.message_id, "cancelled")
        self.conversation.close()

    # turns

    def say(self, text: str, parent: int | None = None) -> ChatMessage:
        """A message of the user under `parent` (default: the end of the branch on screen)."""
        return self.conversation.add(self.conversation.leaf if parent is None else parent, "user", text)

    def reword(self, message_id: int, text: str) -> ChatMessage:
        """A sibling of an answer that says something else."""
        old = self.conversation.messages[message_id]
        return self.conversation.add(old.parent, old.role, text, model=old.model, state="edited")

    def begin_answer(self, parent: int | None = None) -> ChatMessage:
        """An empty answer under `parent`; its text comes by `grow`."""
        conversation = self.conversation
        message = conversation.add(
            conversation.leaf if parent is None else parent, "assistant", model=self.model, state="partial"
        )
        self.turn = Turn(message.id)
        return message

    def continue_answer(self, message: ChatMessage) -> ChatMessage:
        """A sibling of an answer that starts with its text and goes on from there."""
        begun = self.begin_answer(message.parent)
        self.conversation.grow(begun.id, message.thinking, "thinking")
        self.conversation.grow(begun.id, message.text)
        return begun

    def grow(self, answer: str, thinking: str) -> None:
        turn = self.turn
        if turn is None or turn.stopped:
            return
        turn.answer.append(answer)
        turn.thinking.append(thinking)
        now = time.monotonic()
        if thinking:
            turn.thinking_s = now - turn.started
        if now - turn.flushed >= FLUSH_S:
            self._flush(turn)
            turn.flushed = now

    def end(self, event: TurnDone | TurnFailed) -> ChatMessage | None:
        """Close the running answer; the message, or None when it came to nothing and was left out of the branch."""
        turn, self.turn = self.turn, None
        if turn is None:
            return None
        self._flush(turn)
        message = self.conversation.messages[turn.message_id]
        state = "cancelled" if turn.stopped else event.reason if isinstance(event, TurnDone) else "failed"
        stats = asdict(event.stats) if isinstance(event, TurnDone) else {"error": event.message}
        self.conversation.end(message.id, state, stats)
        if not message.text and not message.thinking and state in ("failed", "cancelled"):
            self.conversation.select(message.parent)
            return None
        return message

    def _flush(self, turn: Turn) -> None:
        self.conversation.grow(turn.message_id, "".join(turn.thinking), "thinking")
        self.conversation.grow(turn.message_id, "".join(turn.answer))
        turn.answer, turn.thinking = [], []

    # what the engine gets

    def prompt(self, leaf: int) -> list[Prompt]:
        """The messages up to `leaf`, the system prompt first; thinking of earlier turns is not sent again."""
        prompt = [Prompt("system", self.conversation.system)] if self.conversation.system else []
        path = self.conversation.path(leaf) if leaf != ROOT else []
        return prompt + [Prompt(m.role, m.text) for m in path if m.role != "system" and (m.text or m.role == "user")]

    def next_to_go(self, left_out: int) -> str:
        """The first words of the oldest turn that the context still holds, `left_out` messages being gone already;
        '' where only the last one is left."""
        questions = [m for m in self.prompt(self.conversation.leaf) if m.role != "system"][left_out:]
        questions = [m for m in questions if m.role == "user"]
        return first_words(questions[0].content) if len(questions) > 1 else ""

    @property
    def params(self) -> SamplingParams:
        own = {name: value for name, value in self.conversation.params.items() if _is_sampling(name, value)}
        return SamplingParams(**{**asdict(self.defaults), **own})

    @property
    def thinking(self) -> str:
        """One of THINKING."""
        own = self.conversation.params.get("thinking")
        return own if own in THINKING else self.thinking_default

    @property
    def turn_settings(self) -> dict[str, Any]:
        """What the engine gets with a turn beside messages and sampling."""
        choice = {} if self.thinking == "auto" else {"thinking": self.thinking == "on"}
        return {"conversation": self.conversation.id, **choice}

    @property
    def ignored(self) -> list[str]:
        """Settings of this conversation that mean nothing here: its file may come from elsewhere."""
        own = self.conversation.params.items()
        return [
            f"{name}={value!r}" for name, value in own
            if not (value in THINKING if name == "thinking" else _is_sampling(name, value))
        ]  # fmt: skip

    def set_param(self, name: str, value: Any) -> None:
        """Change one sampling setting of this conversation, or `thinking`. UsageError when it is out of range."""
        if name == "thinking" and value not in THINKING:
            raise UsageError(f"thinking: expected {', '.join(THINKING)}, found {value!r}")
        if name != "thinking":
            SamplingParams(**{**asdict(self.params), name: value})
        self.conversation.configure(self.conversation.system, {**self.conversation.params, name: value})


def _is_sampling(name: str, value: Any) -> bool:
    try:
        SamplingParams(**{name: value})
    except (UsageError, TypeError, ValueError):
        return False
    return True
