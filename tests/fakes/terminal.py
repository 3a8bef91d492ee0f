"""A program on a pseudo terminal: what it wrote and when, what is typed into it. For tests and benchmarks."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

FIRST_FRAME = ("localinfer", "╯", "help")  # the name, the composer's last corner, the footer
_TICKS = os.sysconf("SC_CLK_TCK")


class Terminal:
    """The clock starts before the process does. `close` kills it with all that it started."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], columns: int = 120, rows: int = 36,
        controlling: bool = True,
    ) -> None:  # fmt: skip
        """controlling: closing it then sends a hangup to the process."""
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controlling else None,
        )  # fmt: skip
        os.close(theirs)
        self.output = bytearray()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def read(self, seconds: float) -> bool:
        """Take what comes within `seconds`; whether anything did."""
        if not select.select([self._fd], [], [], max(seconds, 0.0))[0]:
            return False
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.output += data
        return bool(data)

    def wrote(self, mark: str, since: int = 0) -> bool:
        """Whether the output has this text behind its first `since` bytes."""
        return self.output.find(mark.encode(), since) >= 0

    def wait_for(self, *marks: str, since: int = 0, seconds: float = 30.0) -> float:
        """Seconds since the start until all of the marks were written. TimeoutError when they do not come."""
        end = time.perf_counter() + seconds
        while not all(self.wrote(mark, since) for mark in marks):
            if not self.read(end - time.perf_counter()) and time.perf_counter() >= end:
                raise TimeoutError(f"waited in vain for {marks}; found {bytes(self.output[-2000:])!r}")
        return time.perf_counter() - self.started

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def thread_s(self) -> float:
        """CPU seconds of the process's first thread so far: the one that draws. Linux only."""
        pid = self.process.pid
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def hang_up(self) -> None:
        """Close our end, as a window that is closed or a connection that breaks."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.hang_up()
