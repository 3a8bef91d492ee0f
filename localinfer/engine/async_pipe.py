"""The app's end of the pipe to its engine process. A module of its own: the engine process needs no asyncio."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable
from typing import Any, cast

from localinfer.engine.pipe import LENGTH, packed


class AsyncPipe(asyncio.Protocol):
    """Hands each message to `on_message`; `ended()` returns when the engine process is gone.

    `pace_s`: what comes within so many seconds of the last delivery waits for them to pass, and comes together. Until
    then nothing wakes this process, which would take a core from the engine for each token.
    """

    def __init__(self, on_message: Callable[[Any], None]) -> None:
        self.pace_s = 0.0
        self._on_message = on_message
        self._buffer = bytearray()
        self._ended = asyncio.Event()
        self._transport: asyncio.Transport

    @classmethod
    async def connect(cls, sock: socket.socket, on_message: Callable[[Any], None]) -> AsyncPipe:
        loop = asyncio.get_running_loop()
        _, pipe = await loop.create_connection(lambda: cls(on_message), sock=sock)
        return pipe

    def send(self, message: Any) -> None:
        self._transport.write(packed(message))

    async def ended(self) -> None:
        await self._ended.wait()

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        while (body := start + LENGTH.size) <= len(self._buffer):
            end = body + LENGTH.unpack_from(self._buffer, start)[0]
            if end > len(self._buffer):
                break
            self._on_message(pickle.loads(self._buffer[body:end]))
            start = end
        del self._buffer[:start]
        if start and self.pace_s:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(self.pace_s, self._go_on)

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()
