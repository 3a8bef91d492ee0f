"""EngineService: the async door to a model. All that tui/ and cli/ know of the engine is here and in events.py.

The engine runs in a child process (worker.py): an out-of-memory or a GPU abort kills that process from C, where Python
cannot catch it; the app, its text and its screen live on, and `open` starts a new one. Nothing here loads an array
library. One event loop owns a service.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import IO, Any, cast

from localinfer.engine.async_pipe import AsyncPipe
from localinfer.engine.events import GenerationEvent, LoadProgress, TurnDone, TurnFailed
from localinfer.engine.params import ChatMessage, EngineOptions, EngineStatus, SamplingParams
from localinfer.engine.spawn import start as start_engine
from localinfer.errors import BackendError, LocalinferError
from localinfer.records import replace
from localinfer.units import format_bytes

__all__ = ["ChatMessage", "EngineBug", "EngineOptions", "EngineService", "EngineStatus", "SamplingParams"]

CLOSE_TIMEOUT_S = 2.0
STDERR_TAIL = 4000  # bytes of the dead process's last words that are kept for the log


class EngineBug(Exception):
    """A bug inside the engine process; the text holds its traceback."""


class EngineService:
    """open, plan, count_tokens, chat, cancel, pace, status, close."""

    def __init__(self, engine: str = "") -> None:
        """engine: MODULE:CALLABLE that opens an engine in the child; empty: the real one."""
        self._engine = engine
        self._status = EngineStatus()
        self._turn_ids = itertools.count(1)
        self._turn_id = 0  # the turn that runs, 0 when none does
        self._process: _Process | None = None
        self._saves = False  # the engine keeps KV caches of conversations on disk
        self._pace_s = 0.0

    async def open(
        self,
        model_path: str | os.PathLike[str],
        options: EngineOptions | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
    ) -> EngineStatus:
        """Load a model in a fresh engine process; what was open before is closed. Raises the error tree."""
        await self.close()
        path = os.fspath(model_path)
        self._status = EngineStatus(state="loading", path=path)
        self._saves = bool(options and options.snapshot_bytes)
        process = self._process = await _Process.start(self._engine, on_progress)
        process.pace(self._pace_s)
        try:
            status = await process.ask("open", path, options or EngineOptions())
        except BaseException as error:
            await self.close()
            self._status = EngineStatus(state="failed", path=path, failure=str(error))
            raise
        self._status = replace(status, state="ready", path=path, pid=process.pid)
        return self._status

    async def plan(self, model_path: str | os.PathLike[str], options: EngineOptions | None = None) -> Any:
        """The planner's Plan for this machine, without loading anything. Raises the error tree."""
        from localinfer.engine.planning import plan_for

        return await asyncio.to_thread(plan_for, os.fspath(model_path), options or EngineOptions())

    async def count_tokens(self, text: str) -> int | None:
        """Of a text inside a message, by the open model's tokenizer; None where none is open, or a turn runs."""
        if self._process is None or self._status.state != "ready":
            return None
        try:
            return cast("int", await self._process.ask("count", text))
        except LocalinferError:  # it died meanwhile: the next turn says so
            return None

    async def chat(
        self, messages: Sequence[Any] | str, params: SamplingParams | None = None, **settings: Any
    ) -> AsyncIterator[GenerationEvent]:
        """One turn: events, the last of them TurnDone or TurnFailed. A plain string is continued without a template.

        messages: objects with `.role` and `.content`. A last message of the assistant is continued. settings:
        `thinking` (bool) for templates that know it; `conversation` (str), the name its KV cache is saved under.
        Leaving the iteration early cancels the turn.
        """
        turn_id = next(self._turn_ids)
        process = self._process
        if process is None or self._status.state == "failed":
            yield TurnFailed(turn_id, "no model is open", self._status.failure, BackendError.exit_code)
            return
        events = process.subscribe(turn_id)
        self._turn_id, self._status = turn_id, replace(self._status, state="busy")
        over = False
        try:
            process.send("chat", turn_id, _plain(messages), params or SamplingParams(), settings)
            while not over:
                event = await events.get()
                over = isinstance(event, TurnDone | TurnFailed)
                if over:
                    self._after_turn(turn_id, process, event)
                yield self._with_plan(event) if process.death else event
        finally:
            if not over:
                process.send("cancel", turn_id)
                self._after_turn(turn_id, process, None)
            process.unsubscribe(turn_id)

    async def cancel(self) -> None:
        """Stop the running turn: its stream ends with TurnDone(reason="cancelled") and what was written so far."""
        if self._process and self._turn_id:
            self._process.send("cancel", self._turn_id)

    def pace(self, seconds: float) -> None:
        """Deliver events at most so often, those between together; 0: each as it comes. For a reader who draws."""
        self._pace_s = seconds
        if self._process:
            self._process.pace(seconds)

    async def status(self) -> EngineStatus:
        """State without waiting for a running turn; memory and context are those after the last one."""
        return self._status

    async def close(self) -> None:
        """End the engine process. A turn that runs fails; a KV cache that is to be saved is, if that takes no longer
        than CLOSE_TIMEOUT_S."""
        process, self._process = self._process, None
        idle = self._status.state == "ready"
        self._status, self._turn_id = EngineStatus(), 0
        if process:
            await process.close(save=idle and self._saves)

    def _with_plan(self, event: GenerationEvent) -> GenerationEvent:
        """The hint of a death, with what the plan had said."""
        plan: Any = self._status.plan
        if not isinstance(event, TurnFailed) or plan is None:
            return event
        planned = f"the plan was {format_bytes(plan.total)} of {format_bytes(plan.budget.budget_bytes)}"
        return replace(event, hint="; ".join(filter(None, (event.hint, planned))))

    def _after_turn(self, turn_id: int, process: _Process, event: GenerationEvent | None) -> None:
        if self._turn_id == turn_id:
            self._turn_id = 0
        if process is not self._process:
            return
        if process.death:
            self._status = replace(self._status, state="failed", failure=process.death.message)
        else:
            self._status = replace(self._status, state="ready")
        if isinstance(event, TurnDone):
            peak = event.stats.memory.peak_bytes or self._status.peak_bytes
            self._status = replace(self._status, context_used=event.stats.context_used, peak_bytes=peak)


def _plain(messages: Sequence[Any] | str) -> list[ChatMessage] | str:
    """Callers' own message classes stay on this side: the engine process need not import what they come from."""
    if isinstance(messages, str):
        return messages
    return [ChatMessage(m.role, m.content, getattr(m, "thinking", "")) for m in cast("Sequence[Any]", messages)]


class _Process:
    """One engine process and the messages to and from it."""

    _pipe: AsyncPipe
    _watcher: asyncio.Task[None]

    def __init__(
        self, popen: subprocess.Popen[bytes], stderr: IO[bytes], on_progress: Callable[[LoadProgress], None] | None
    ) -> None:
        self._popen = popen
        self._stderr = stderr
        self._on_progress = on_progress
        self._ids = itertools.count(-1, -1)  # requests count down, turns count up
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._turns: dict[int, asyncio.Queue[GenerationEvent]] = {}
        self._closing = False
        self.death: LocalinferError | None = None

    @classmethod
    async def start(cls, engine: str, on_progress: Callable[[LoadProgress], None] | None) -> _Process:
        popen, sock, stderr = start_engine(engine)
        process = cls(popen, stderr, on_progress)
        process._pipe = await AsyncPipe.connect(sock, process._dispatch)
        process._watcher = asyncio.create_task(process._watch())
        return process

    @property
    def pid(self) -> int:
        return self._popen.pid

    def pace(self, seconds: float) -> None:
        self._pipe.pace_s = seconds

    def send(self, kind: str, *arguments: Any) -> None:
        if not self.death:
            self._pipe.send((kind, *arguments))

    async def ask(self, kind: str, *arguments: Any) -> Any:
        """Send a request and wait for its reply; its error is raised here."""
        request_id = next(self._ids)
        future = self._replies[request_id] = asyncio.get_running_loop().create_future()
        if self.death:
            raise self.death
        self._pipe.send((kind, request_id, *arguments))
        try:
            return await future
        finally:
            self._replies.pop(request_id, None)

    def subscribe(self, turn_id: int) -> asyncio.Queue[GenerationEvent]:
        events = self._turns[turn_id] = asyncio.Queue()
        if self.death:
            events.put_nowait(_failed(turn_id, self.death))
        return events

    def unsubscribe(self, turn_id: int) -> None:
        self._turns.pop(turn_id, None)

    async def _watch(self) -> None:
        await self._pipe.ended()
        self.death = await self._cause_of_death()
        for future in self._replies.values():
            if not future.done():
                future.set_exception(self.death)
        for turn_id, events in self._turns.items():
            events.put_nowait(_failed(turn_id, self.death, self._last_words()))

    def _dispatch(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("event", LoadProgress() as event):
                if self._on_progress:
                    self._on_progress(event)
            case ("event", event):
                if event.turn_id in self._turns:
                    self._turns[event.turn_id].put_nowait(event)
            case ("reply", request_id, value):
                self._settle(request_id, value, None)
            case ("error", request_id, error, details):
                self._settle(request_id, None, error or EngineBug(details))

    def _settle(self, request_id: int, value: Any, error: Exception | None) -> None:
        future = self._replies.get(request_id)
        if future is None or future.done():
            return
        if error:
            future.set_exception(error)
        else:
            future.set_result(value)

    async def _cause_of_death(self) -> LocalinferError:
        if self._closing:
            return BackendError("the model was closed")
        try:
            code = await asyncio.to_thread(self._popen.wait, CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = await asyncio.to_thread(self._popen.wait)
        return BackendError(*_explain(code))

    def _last_words(self) -> str:
        if self._stderr.closed:
            return ""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - STDERR_TAIL))
        return self._stderr.read().decode(errors="replace")

    async def close(self, save: bool = False) -> None:
        """The child ends when its pipe does; if it does not within CLOSE_TIMEOUT_S, it is killed."""
        if save and not self.death:
            with suppress(LocalinferError, EngineBug, TimeoutError):
                await asyncio.wait_for(self.ask("save"), CLOSE_TIMEOUT_S)
        self._closing = True
        self._pipe.close()
        try:
            await asyncio.to_thread(self._popen.wait, CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            await asyncio.to_thread(self._popen.wait)
        await self._watcher
        self._stderr.close()


def _failed(turn_id: int, error: LocalinferError, details: str = "") -> TurnFailed:
    return TurnFailed(turn_id, error.message, error.hint, error.exit_code, details)


_SIGNAL_HINTS = {
    signal.SIGKILL: "if nobody killed it, memory ran out: a smaller --ctx or --kv q8_0 needs less",
    signal.SIGBUS: "the model file may have been changed, cut or removed while in use, or its disk fails",
    signal.SIGABRT: "a GPU ran out of memory or time: a smaller --ctx or --kv q8_0 needs less",
}


def _explain(code: int) -> tuple[str, str]:
    """Message and hint for the exit status of an engine that was not asked to end."""
    try:
        cause = signal.Signals(-code)
    except ValueError:
        return f"the engine process ended by itself with status {code}", "the model can be loaded again"
    return (
        f"the engine process was killed ({cause.name})",
        _SIGNAL_HINTS.get(cause, "the model can be loaded again"),
    )
