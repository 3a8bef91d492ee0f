"""The engine process, started. Imports little: a command can start it first and load its own needs meanwhile."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from typing import IO, NamedTuple

from localinfer.errors import BackendError

_ahead: list[EngineProcess] = []  # one at most: started, and not taken yet


class EngineProcess(NamedTuple):
    """A child that runs engine/worker.py, our end of its pipe, and the file that its stderr goes to."""

    popen: subprocess.Popen[bytes]
    sock: socket.socket
    stderr: IO[bytes]


def start_ahead() -> None:
    """Start the engine process that the first `start` will return. It ends with this process, used or not."""
    if not _ahead:
        _ahead.append(_start(""))


def start(engine: str = "") -> EngineProcess:
    """engine: MODULE:CALLABLE that opens an engine in the child; empty: the real one. BackendError where it fails."""
    return _ahead.pop() if _ahead and not engine else _start(engine)


def _start(engine: str) -> EngineProcess:
    ours, theirs = socket.socketpair()
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process); a screen must stay clean of it
    fd = str(theirs.fileno())
    command = [sys.executable, "-P", "-m", "localinfer.engine.worker", fd, *([engine] if engine else [])]
    try:
        popen = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, pass_fds=[theirs.fileno()]
        )
    except OSError as error:
        ours.close()
        stderr.close()
        raise BackendError(f"the engine process could not be started: {error}") from error
    finally:
        theirs.close()
    return EngineProcess(popen, ours, stderr)
