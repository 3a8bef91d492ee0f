"""A chat of plain lines for terminals that cannot draw (TERM=dumb): prompt, streamed answer, Ctrl+C stops it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace

from localinfer.errors import EXIT_INTERRUPTED, LocalinferError, TooSlow
from localinfer.tui.bridge import SLOW_TOK_S, EngineOptions, Notice, Service, TextDelta, TurnDone, TurnFailed
from localinfer.tui.markdown.rows import visible
from localinfer.tui.session import ChatSession, model_name


async def plain_chat(service: Service, path: str, options: EngineOptions, session: ChatSession) -> int:
    """Until the end of input. Raises the error tree when the model won't load, KeyboardInterrupt at the prompt."""
    session.model = model_name(path)
    print(f"loading {session.model} ...", flush=True)
    lines = _Lines(sys.stdin.fileno())
    if not await _open(service, path, options, lines):
        return 0
    print("An empty line or the end of input leaves; Ctrl+C stops an answer.", flush=True)
    try:
        while text := (await lines.next()).strip():
            session.say(text)
            await _answer(service, session)
    finally:
        session.close()
        await service.close()
    return 0


async def _open(service: Service, path: str, options: EngineOptions, lines: _Lines) -> bool:
    """Whether the model is open: one that would be very slow is only loaded when the user wants it."""
    try:
        await service.open(path, replace(options, least_tok_s=SLOW_TOK_S))
    except TooSlow as error:
        print(f"{error.message}. Start it all the same? (y/n)", flush=True)
        if (await lines.next()).strip().lower() not in ("y", "yes"):
            return False
        await service.open(path, options)
    return True


class _Lines:
    """Lines of a file descriptor without a thread, which would outlive Ctrl+C."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""

    async def next(self) -> str:
        """The next line, '' at the end."""
        print("> ", end="", flush=True)
        while b"\n" not in self._buffer:
            await self._readable()
            data = os.read(self._fd, 65536)
            self._buffer += data
            if not data:
                break
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace")

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(self._fd, _settle, ready)
        except OSError:  # a regular file is always readable, and cannot be watched
            return
        try:
            await ready
        finally:
            loop.remove_reader(self._fd)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _answer(service: Service, session: ChatSession) -> None:
    message = session.begin_answer()
    with _stopping_on_interrupt(service):
        async for event in service.chat(session.prompt(message.parent), session.params, **session.turn_settings):
            if isinstance(event, TextDelta):
                session.grow(*((event.text, "") if event.kind == "answer" else ("", event.text)))
                if event.kind == "answer":
                    sys.stdout.write(visible(event.text))
                    sys.stdout.flush()
            elif isinstance(event, Notice):
                print(f"note: {visible(event.text)}", file=sys.stderr, flush=True)
            elif isinstance(event, TurnDone | TurnFailed):
                session.end(event)
                print(f"\n{_last_words(event)}", flush=True)


def _last_words(event: TurnDone | TurnFailed) -> str:
    if isinstance(event, TurnFailed):
        return f"error: {event.message}" + (f"\nhint: {event.hint}" if event.hint else "")
    rate = f", {event.stats.decode_tok_s:.1f} tok/s" if event.stats.decode_tok_s else ""
    return f"({event.stats.generated_tokens} tokens{rate})"


class _stopping_on_interrupt:
    """Ctrl+C cancels the turn instead of ending the program."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> None:
        with suppress(NotImplementedError, RuntimeError):  # no signals in this loop: Ctrl+C ends the program then
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop)

    def __exit__(self, *exc: object) -> None:
        with suppress(NotImplementedError, RuntimeError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def _stop(self) -> None:
        task = asyncio.ensure_future(self._service.cancel())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def run_plain(service: Service, path: str, options: EngineOptions, session: ChatSession) -> int:
    """The exit code; errors as one line on stderr."""
    try:
        return asyncio.run(plain_chat(service, path, options, session))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except LocalinferError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
