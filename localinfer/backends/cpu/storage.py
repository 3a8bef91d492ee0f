"""Files read past the page cache, and anonymous memory to read them into.

Direct reads into large pages take a twentieth of a core and leave the page cache to others; reads through the cache
take a third of a core. Where a file system has no direct reads, the cache is used and given back.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from localinfer.backends.cpu import structs
from localinfer.errors import BackendError
from localinfer.formats.direct import PAGE, open_direct

HUGE_PAGE = 2 * 2**20
READ_BYTES = 4 * 2**20


class Room:
    """Anonymous memory that starts on a large page; pages are taken when they are first written."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        try:
            self._memory = mmap.mmap(-1, n_bytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError) as error:
            raise BackendError(
                f"no memory for {n_bytes} bytes of weights: {error}", "a smaller --weight-budget"
            ) from None
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        skip = -start % HUGE_PAGE
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self.address = start + skip
        self.view = memoryview(self._memory)[skip : skip + n_bytes]


class Files:
    """Every part of a model file, opened for direct reads where the file system allows them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._fds: list[int] = []
        self._direct: list[bool] = []
        try:
            for path in paths:
                fd, direct = open_direct(path)
                self._fds.append(fd)
                self._direct.append(direct)
        except OSError as error:
            self.close()
            raise BackendError(f"{error.filename}: cannot be read: {error.strerror}") from None

    @property
    def direct(self) -> bool:
        return all(self._direct)

    def extent(self, part: int, offset: int, n_bytes: int) -> structs.Extent:
        """Whole pages that hold n_bytes from `offset` on."""
        first, end = offset // PAGE * PAGE, -(-(offset + n_bytes) // PAGE) * PAGE
        return structs.Extent(self._fds[part], not self._direct[part], first, end - first, offset + n_bytes - first)

    def fd(self, part: int) -> int:
        return self._fds[part]

    def drops(self, part: int) -> bool:
        """Must what was read be given back to the system?"""
        return not self._direct[part]

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())
