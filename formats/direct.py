"""Files opened so that reads go past the page cache, where the file system allows that."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

PAGE = 4096  # such reads start and end on multiples of this


def open_direct(path: Path) -> tuple[int, bool]:
    """(file descriptor, whether reads go past the page cache). OSError where the file cannot be opened."""
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
    if hasattr(os, "O_DIRECT"):
        try:
            fd = os.open(path, flags | os.O_DIRECT)
        except OSError:  # a file system without them; whatever else is wrong shows again below
            return os.open(path, flags), False
        if _reads(fd):
            return fd, True
        os.close(fd)
    fd = os.open(path, flags)
    return fd, _turn_cache_off(fd)


def _reads(fd: int) -> bool:
    """Some file systems refuse direct reads only when they are made."""
    try:
        with mmap.mmap(-1, PAGE) as page:
            return os.preadv(fd, [page], 0) > 0
    except OSError:
        return False


def _turn_cache_off(fd: int) -> bool:
    """macOS: F_NOCACHE does it for a descriptor."""
    import fcntl

    command = getattr(fcntl, "F_NOCACHE", None)
    if command is None:
        return False
    try:
        fcntl.fcntl(fd, command, 1)
    except OSError:
        return False
    return True
