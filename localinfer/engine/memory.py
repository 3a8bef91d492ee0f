"""What this process took at most, as the system counts it."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_bytes() -> int:
    """Largest resident size so far, mapped file pages included."""
    if sys.platform == "linux":
        # getrusage's figure survives exec: a small child of a large app would inherit the app's peak
        return _status_bytes("VmHWM")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status_bytes(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":")), 0)
