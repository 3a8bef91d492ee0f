"""What this machine's cores can do at best, measured on the pool that runs the model."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

BUFFER_BYTES = 256 * 2**20  # beyond the caches


class Ceilings:
    """Measures again and again, next to what it is compared with, and keeps the best: nothing reads faster."""

    def __init__(self, backend: Any) -> None:
        """backend: a CpuBackend."""
        self._backend = backend
        self._memory = mmap.mmap(-1, BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        ctypes.memset(self._address, 1, BUFFER_BYTES)  # pages that were never written all read from one
        self.bandwidth_bytes_s = 0.0
        self.flops = 0.0

    def rebind(self, backend: Any) -> None:
        """Measure on another pool from now on (one with more threads); what was seen stays."""
        self._backend = backend

    def measure(self, seconds: float = 0.2) -> None:
        lib, pool = self._backend.lib, self._backend.pool
        bandwidth = lib.li_measure_read_bandwidth(pool, self._address, BUFFER_BYTES, seconds)
        self.bandwidth_bytes_s = max(self.bandwidth_bytes_s, bandwidth)
        self.flops = max(self.flops, lib.li_measure_fma(pool, seconds / 4))
