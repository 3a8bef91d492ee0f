"""The app's end of the pipe to its engine process. A module of its own: the engine process needs no asyncio."""

from __future__ import annotations

import asyncio
import pickle
import socket
from typing import Any

from localinfer.engine.pipe import LENGTH, packed


class AsyncPipe:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, sock: socket.socket) -> AsyncPipe:
        return cls(*await asyncio.open_connection(sock=sock))

    def send(self, message: Any) -> None:
        self._writer.write(packed(message))

    async def receive(self) -> Any:
        """The next message; EOFError when the engine process is gone."""
        try:
            n = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))[0]
            return pickle.loads(await self._reader.readexactly(n))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise EOFError from None

    def close(self) -> None:
        self._writer.close()
