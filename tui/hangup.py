"""The end of the terminal is the end of the app: what was written is saved, the engine ends, nothing goes on unseen.

A terminal that closes sends SIGHUP to its foreground processes. One that is lost otherwise (a broken connection, a
pseudo terminal that never was the controlling one) sends nothing: reading gives an end of file again and again, and
writing fails. The kernel tells that to who polls the descriptor, which costs nothing until then.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

PATIENCE_S = 6.0  # for an orderly end: a screen that cannot be written to may hold one up


def watch_terminal(leave: Callable[[int], None]) -> None:
    """Call `leave(exit code)` in the running loop when the terminal is gone or the process is told to end.

    Were the process still there PATIENCE_S after the terminal, it would end at once.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGHUP, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError):  # a platform or a thread without
            loop.add_signal_handler(number, leave, 128 + number)
    if (poller := _poller()) is not None:
        threading.Thread(target=_wait_for_hangup, args=(poller, loop, leave), daemon=True).start()


def terminal_is_gone() -> bool:
    """Nobody can be shown anything, nor is there a screen to restore: writing to it would never end."""
    return (poller := _poller()) is not None and bool(poller.poll(0))


def _poller() -> select.poll | None:
    """Of the terminal's end; None where input is no terminal or the platform cannot say."""
    if not hasattr(select, "poll") or sys.__stdin__ is None or not _is_terminal(sys.__stdin__.fileno()):
        return None
    poller = select.poll()
    poller.register(sys.__stdin__, 0)  # hangups and errors are always reported
    return poller


def _is_terminal(fd: int) -> bool:
    """Also of one that is gone, which os.isatty denies."""
    try:
        return stat.S_ISCHR(os.fstat(fd).st_mode) and not os.path.samestat(os.fstat(fd), os.stat(os.devnull))
    except OSError:
        return False


def _wait_for_hangup(poller: select.poll, loop: asyncio.AbstractEventLoop, leave: Callable[[int], None]) -> None:
    while not poller.poll():
        pass
    with suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(leave, 128 + signal.SIGHUP)
    time.sleep(PATIENCE_S)
    os._exit(128 + signal.SIGHUP)
