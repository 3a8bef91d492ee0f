"""Messages between the app and its engine process: length-prefixed pickles over a socket pair.

Both ends are ours and nobody else can reach the pair, so pickle is safe here; it carries frozen dataclasses whole.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import threading
from typing import Any

_LENGTH = struct.Struct("<I")


class Pipe:
    """The engine's end, blocking. `send` may be called from several threads."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = sock.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: Any) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._sock.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> Any:
        """The next message; EOFError when the other end is gone."""
        return pickle.loads(self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0]))

    def _exactly(self, n: int) -> bytes:
        data = self._reader.read(n)
        if len(data) < n:
            raise EOFError
        return data


class AsyncPipe:
    """The app's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, sock: socket.socket) -> AsyncPipe:
        return cls(*await asyncio.open_connection(sock=sock))

    def send(self, message: Any) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._writer.write(_LENGTH.pack(len(data)) + data)

    async def receive(self) -> Any:
        """The next message; EOFError when the engine process is gone."""
        try:
            n = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))[0]
            return pickle.loads(await self._reader.readexactly(n))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise EOFError from None

    def close(self) -> None:
        self._writer.close()
