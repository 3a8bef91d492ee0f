"""GenerationEvent -> Textual message. The only file in tui/ that knows the engine; the rest imports from here.

Text is gathered and handed on about 20 times a second, and less often when the screen needs long for it, because
redrawing takes its time from decoding; so does waking up, so the engine's events are asked for at the same pace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

from textual.message import Message
from textual.message_pump import MessagePump

from localinfer.backends.base import PagingState, disk_is_slow
from localinfer.engine.events import (
    GenerationEvent,
    LoadProgress,
    Notice,
    PromptProgress,
    TextDelta,
    TurnDone,
    TurnFailed,
    TurnStats,
)
from localinfer.engine.params import SLOW_TOK_S, EngineOptions, EngineStatus, SamplingParams
from localinfer.errors import LocalinferError, TooSlow
from localinfer.records import dataclass

__all__ = [
    "SLOW_TOK_S", "EngineBridge", "EngineOptions", "EngineStatus", "ModelFailed", "ModelLoading", "ModelOpened",
    "Notice", "PagingState", "Prompt", "SamplingParams", "Service", "TextDelta", "TurnDone", "TurnEnded", "TurnFailed",
    "TurnNotice", "TurnReading", "TurnStats", "TurnText", "disk_is_slow",
]  # fmt: skip

FRAME_S = 1 / 20
SCREEN_SHARE = 0.05  # the part of a core that showing streamed text may take
SLOWEST_FRAME_S = 0.2
SLACK_S = 0.005  # text that comes so much before its time is shown at once, not by a wake-up of its own


class Service(Protocol):
    """What the bridge needs of EngineService; tests bring a scripted one."""

    async def open(self, model_path: Any, options: Any = None, on_progress: Any = None) -> EngineStatus: ...
    async def plan(self, model_path: Any, options: Any = None) -> Any: ...
    async def count_tokens(self, text: str) -> int | None: ...
    def chat(self, messages: Sequence[Any] | str, params: Any = None, **settings: Any) -> Any: ...
    async def cancel(self) -> None: ...
    def pace(self, seconds: float) -> None: ...
    async def status(self) -> EngineStatus: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class Prompt:
    """A message as the engine takes it."""

    role: str
    content: str


@dataclass
class ModelLoading(Message, bubble=False):
    fraction: float
    text: str


@dataclass
class ModelOpened(Message, bubble=False):
    status: EngineStatus


@dataclass
class ModelFailed(Message, bubble=False):
    """`plan` is the planner's, where the model did not fit. `too_slow`: it would run, if the user wants it."""

    path: str
    message: str
    hint: str
    plan: Any = None
    too_slow: bool = False


@dataclass
class TurnReading(Message, bubble=False):
    """The prompt goes through the model; token counts."""

    done: int
    total: int
    cached: int


@dataclass
class TurnText(Message, bubble=False):
    """Text since the last of these. `tok_s` is the rate of this turn so far, 0 until it can be told."""

    answer: str
    thinking: str
    n_tokens: int
    tok_s: float


@dataclass
class TurnNotice(Message, bubble=False):
    text: str
    plan: Any = None  # that holds from now on, where it changed


@dataclass
class TurnEnded(Message, bubble=False):
    """The one end of a turn; all its text has been handed on before."""

    event: TurnDone | TurnFailed


class EngineBridge:
    """Runs the engine's calls and posts what comes back to `target`."""

    def __init__(self, service: Service, target: MessagePump) -> None:
        self.service = service
        self._target = target
        self._buffer = _TextBuffer()
        self._pace_s = FRAME_S
        self._handed_on = 0.0  # when text was, last
        self._cpu_s = 0.0  # of this thread, when text was handed on last
        self._flush: asyncio.TimerHandle | None = None
        self.busy = False

    async def open(self, path: str, options: EngineOptions) -> bool:
        """Load a model; the outcome is posted, and returned as whether it worked."""
        self._post(ModelLoading(0.0, "starting the engine"))
        try:
            status = await self.service.open(path, options, self._loading)
        except LocalinferError as error:
            self._post(
                ModelFailed(path, error.message, error.hint, getattr(error, "plan", None), isinstance(error, TooSlow))
            )
            return False
        except Exception as error:  # a bug in the engine must not take the conversation with it
            text = str(error).strip().splitlines() or [type(error).__name__]
            self._post(ModelFailed(path, f"the engine has a bug: {text[-1]}", "please report it"))
            return False
        self._post(ModelOpened(status))
        return True

    async def plan(self, path: str, options: EngineOptions) -> Any:
        return await self.service.plan(path, options)

    async def count_tokens(self, text: str) -> int | None:
        return await self.service.count_tokens(text)

    async def chat(self, messages: Sequence[Prompt], params: SamplingParams, **settings: Any) -> None:
        """One turn; posts end with exactly one TurnEnded."""
        self.busy = True
        self._buffer = _TextBuffer()
        self._cpu_s = time.thread_time()
        self._keep_pace(FRAME_S)
        ended = False
        try:
            async for event in self.service.chat(messages, params, **settings):
                ended = self._take(event) or ended
        except LocalinferError as error:
            self._fail(error.message, error.hint, error.exit_code)
        except Exception as error:
            self._fail(f"the engine has a bug: {type(error).__name__}: {error}", "please report it", 1)
        else:
            if not ended:
                self._fail("the engine stopped without saying why", "the model can be loaded again", 6)
        finally:
            self.busy = False

    async def cancel(self) -> None:
        await self.service.cancel()

    async def status(self) -> EngineStatus:
        return await self.service.status()

    async def close(self) -> None:
        if self._flush:
            self._flush.cancel()
        await self.service.close()

    def _take(self, event: GenerationEvent) -> bool:
        match event:
            case TextDelta():
                self._buffer.add(event)
                if self._flush is None:
                    early_s = self._handed_on + self._pace_s - SLACK_S - time.monotonic()
                    self._flush = asyncio.get_running_loop().call_later(max(0.0, early_s), self._hand_on)
            case PromptProgress():
                self._post(TurnReading(event.done, event.total, event.cached))
            case Notice():
                self._post(TurnNotice(event.text, event.plan))
            case LoadProgress():
                self._loading(event)
            case TurnDone() | TurnFailed():
                self._hand_on()
                self.busy = False
                self._post(TurnEnded(event))
                return True
        return False

    def _hand_on(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if text := self._buffer.drain():
            self._handed_on = time.monotonic()
            self._post(text)
            self._adapt_pace()

    def _adapt_pace(self) -> None:
        """Let the next text come late enough for this thread, drawing included, to keep to its share of a core."""
        now = time.thread_time()
        cost_s, self._cpu_s = now - self._cpu_s, now
        self._keep_pace(min(max(FRAME_S, cost_s / SCREEN_SHARE), SLOWEST_FRAME_S))

    def _keep_pace(self, seconds: float) -> None:
        self._pace_s = seconds
        self.service.pace(seconds)

    def _fail(self, message: str, hint: str, exit_code: int) -> None:
        self._hand_on()
        self.busy = False
        self._post(TurnEnded(TurnFailed(0, message, hint, exit_code)))

    def _loading(self, event: LoadProgress) -> None:
        self._post(ModelLoading(event.fraction, event.text))

    def _post(self, message: Message) -> None:
        self._target.post_message(message)


class _TextBuffer:
    """Deltas between two repaints, and the clock of the turn."""

    def __init__(self) -> None:
        self._answer: list[str] = []
        self._thinking: list[str] = []
        self._n_tokens = 0
        self._n_first = 0  # tokens of the first delta: nothing was timed for them
        self._started = 0.0
        self._last = 0.0

    def add(self, event: TextDelta) -> None:
        self._last = time.perf_counter()
        n = len(event.tokens) or 1
        if not self._started:
            self._started, self._n_first = self._last, n
        self._n_tokens += n
        (self._thinking if event.kind == "thinking" else self._answer).append(event.text)

    def drain(self) -> TurnText | None:
        if not self._answer and not self._thinking:
            return None
        text = TurnText("".join(self._answer), "".join(self._thinking), self._n_tokens, self._rate())
        self._answer, self._thinking = [], []
        return text

    def _rate(self) -> float:
        elapsed = self._last - self._started
        return (self._n_tokens - self._n_first) / elapsed if elapsed > 0.05 else 0.0
