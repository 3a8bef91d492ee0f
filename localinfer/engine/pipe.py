"""Messages between the app and its engine process: length-prefixed pickles over a socket pair. The engine's end.

Both ends are ours and nobody else can reach the pair, so pickle is safe here; it carries frozen dataclasses whole.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from typing import Any

LENGTH = struct.Struct("<I")


def packed(message: Any) -> bytes:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


class Pipe:
    """Blocking. `send` may be called from several threads."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = sock.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: Any) -> None:
        data = packed(message)
        with self._lock:
            self._sock.sendall(data)

    def receive(self) -> Any:
        """The next message; EOFError when the other end is gone."""
        return pickle.loads(self._exactly(LENGTH.unpack(self._exactly(LENGTH.size))[0]))

    def _exactly(self, n: int) -> bytes:
        data = self._reader.read(n)
        if len(data) < n:
            raise EOFError
        return data
