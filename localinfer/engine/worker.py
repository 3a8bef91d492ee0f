"""The engine process: an Engine on the main thread, requests in and events out over a pipe.

    python -m localinfer.engine.worker FD [MODULE:CALLABLE]

FD is this end of a socket pair; the callable opens an engine as `Engine.open` does (tests give a scripted one). The
main thread alone calls the engine. A second thread reads requests, so a cancel arrives while a token is computed and
the end of the app, however it ended, ends this process too.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from importlib import import_module
from typing import Any

from localinfer.engine.events import LoadProgress, TurnFailed
from localinfer.engine.params import EngineStatus
from localinfer.engine.pipe import Pipe
from localinfer.errors import EXIT_BUG, BackendError, LocalinferError

SAVE_AFTER_S = 1.0  # without a request
DEFAULT_ENGINE = "localinfer.engine.opening:open_engine"


class Worker:
    """Requests are (kind, id, *arguments); answers ("reply", id, value), ("error", id, ...) or ("event", event)."""

    def __init__(self, pipe: Pipe, opener: Any) -> None:
        self._pipe = pipe
        self._opener = opener
        self._requests: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._engine: Any = None
        self._status = EngineStatus(pid=os.getpid())

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True, name="requests").start()
        self._serve()

    def _serve(self) -> None:
        while True:
            kind, request_id, *arguments = self._next_request()
            getattr(self, f"_do_{kind}")(request_id, *arguments)

    def _next_request(self) -> tuple[Any, ...]:
        """Wait for one. A while after the last, what that left is saved; the next request interrupts it."""
        try:
            return self._requests.get(timeout=SAVE_AFTER_S)
        except queue.Empty:
            if self._engine:
                self._engine.save(self._requests.empty)
            return self._requests.get()

    def _read(self) -> None:
        """EOF means that the app is gone: end at once, whatever the main thread is doing."""
        try:
            while True:
                message = self._pipe.receive()
                if message[0] == "cancel":
                    self._cancelled.add(message[1])
                else:
                    self._requests.put(message)
        finally:
            os._exit(0)

    def _do_open(self, request_id: int, path: str, options: Any) -> None:
        try:
            self._engine = self._opener(path, options, self._load_progress)
            self._pipe.send(("reply", request_id, self._engine.status()))
        except Exception as error:
            self._pipe.send(("error", request_id, _as_error(error), _details(error)))

    def _do_save(self, request_id: int) -> None:
        """Before the end: what is not saved yet."""
        self._pipe.send(("reply", request_id, bool(self._engine and self._engine.save())))

    def _do_count(self, request_id: int, text: str) -> None:
        self._pipe.send(("reply", request_id, self._engine.count_tokens(text)))

    def _do_status(self, request_id: int) -> None:
        self._pipe.send(("reply", request_id, self._engine.status() if self._engine else self._status))

    def _do_chat(self, turn_id: int, messages: Any, params: Any, settings: dict[str, Any]) -> None:
        try:
            events = self._engine.chat(
                messages, params, turn_id=turn_id, cancelled=lambda: turn_id in self._cancelled, **settings
            )
            for event in events:
                self._pipe.send(("event", event))
        except Exception as error:
            failure = _as_error(error)
            if failure is None:
                text = f"{type(error).__name__}: {error}"
                failed = TurnFailed(turn_id, f"a bug in localinfer: {text}", "", EXIT_BUG, _details(error))
            else:
                failed = TurnFailed(turn_id, failure.message, failure.hint, failure.exit_code)
            self._pipe.send(("event", failed))
        finally:
            self._cancelled.discard(turn_id)

    def _load_progress(self, fraction: float, text: str) -> None:
        self._pipe.send(("event", LoadProgress(0, fraction, text)))


def _as_error(error: Exception) -> LocalinferError | None:
    """The error of the tree that stands for this one, or None for a bug."""
    if isinstance(error, LocalinferError):
        return error
    if isinstance(error, MemoryError):
        return BackendError("memory ran out in the engine", "a smaller --ctx or --kv q8_0 needs less")
    return None


def _details(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def main(arguments: list[str]) -> None:
    gc.set_threshold(50_000, 20, 20)  # as in cli/main.py: a vocabulary is many objects and no garbage
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the app's business: it cancels the turn
    pipe = Pipe(socket.socket(fileno=int(arguments[0])))
    module, _, name = (arguments[1] if len(arguments) > 1 else DEFAULT_ENGINE).partition(":")
    try:
        opener = getattr(import_module(module), name)
    except (EOFError, ConnectionError):
        return
    Worker(pipe, opener).run()


if __name__ == "__main__":
    main(sys.argv[1:])
