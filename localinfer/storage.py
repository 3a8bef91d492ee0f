"""How fast this machine's disks read: measured once for each, remembered with the date, part of every paging forecast.

Measured as weights are read: large direct reads into large pages, the page cache bypassed. Without direct reads the
page cache is told to forget the file first. Neither sees through a cache of the disk or of the machine that hosts us.
"""

from __future__ import annotations

import mmap
import os
import random
import time
from datetime import date
from pathlib import Path

from localinfer.device import machine_name
from localinfer.formats.direct import PAGE, open_direct
from localinfer.planner.efficiency import StorageSpeed, load_storage, record_storage

REQUEST_BYTES = 4 * 2**20
HUGE_PAGE = 2 * 2**20
MEASURE_S = 0.3
MOST_BYTES = 2**30


def disk_of(path: Path) -> str:
    """The mount point that holds a file: what a measurement is remembered for."""
    place = path.resolve()
    while not os.path.ismount(place) and place != place.parent:
        place = place.parent
    return str(place)


def known_speed(path: Path) -> StorageSpeed | None:
    """What was measured on the file's disk; None where nothing was."""
    return load_storage(machine_name(), disk_of(path))


def storage_speed(path: Path) -> StorageSpeed | None:
    """The same, measured now where it was not; None where the file cannot be read or is too small to tell."""
    return known_speed(path) or measure_storage(path)


def measure_storage(path: Path, seconds: float = MEASURE_S) -> StorageSpeed | None:
    """Reads the file for so long and remembers the speed of its disk."""
    bytes_s = read_speed(path, seconds)
    if not bytes_s:
        return None
    speed = StorageSpeed(bytes_s, date.today().isoformat())
    record_storage(machine_name(), disk_of(path), speed)
    return speed


def read_speed(path: Path, seconds: float = MEASURE_S) -> float:
    """Bytes a second of large reads in order, from a random place on; 0 where too little is on the disk."""
    try:
        fd, direct = open_direct(path)
    except OSError:
        return 0.0
    try:
        size = os.fstat(fd).st_size // REQUEST_BYTES * REQUEST_BYTES
        if size < 4 * REQUEST_BYTES or _has_holes(fd):
            return 0.0
        if not direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return _timed_reads(fd, size, seconds)
    except OSError:
        return 0.0
    finally:
        os.close(fd)


def _has_holes(fd: int) -> bool:
    """Is half of the file not on the disk (never written, as a download that goes on)? No disk is read for that."""
    found = os.fstat(fd)
    blocks = getattr(found, "st_blocks", None)  # of 512 bytes; Windows has none
    return blocks is not None and 2 * 512 * blocks < found.st_size


def _timed_reads(fd: int, size: int, seconds: float) -> float:
    buffer = _large_pages(REQUEST_BYTES)
    first = random.randrange(size // REQUEST_BYTES) * REQUEST_BYTES
    os.preadv(fd, [buffer], first)  # the buffer's pages are made now
    done, start, most = 0, time.perf_counter(), min(size, MOST_BYTES)
    while done < most and time.perf_counter() - start < seconds:
        done += os.preadv(fd, [buffer], (first + done + REQUEST_BYTES) % size)
    return done / (time.perf_counter() - start)


def _large_pages(n_bytes: int) -> memoryview:
    """Anonymous memory that starts on a large page and, where the system has them, consists of them."""
    import ctypes

    private = {} if os.name == "nt" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    memory = mmap.mmap(-1, n_bytes + HUGE_PAGE, **private)
    skip = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE_PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    assert skip % PAGE == 0
    return memoryview(memory)[skip : skip + n_bytes]
