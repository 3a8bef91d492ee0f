"""Sizes and counts as people write them, and as we print them. Imports nothing but the error tree.

Bytes are integers everywhere. `GiB` = 2**30, `GB` = 10**9, and a bare `k`, `M`, `G` in a context length is
binary: `32k` = 32768.
"""

from __future__ import annotations

import re

from localinfer.errors import UsageError

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
GB = 10**9

_BYTE_UNITS = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 10**3,
    "m": MIB, "mib": MIB, "mb": 10**6,
    "g": GIB, "gib": GIB, "gb": GB,
    "t": TIB, "tib": TIB, "tb": 10**12,
}  # fmt: skip


def parse_bytes(text: str, name: str = "size") -> int:
    """`64GiB`, `96GB`, `8g` (binary), `1.5GiB` or plain bytes -> integer bytes. UsageError otherwise."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = match and _BYTE_UNITS.get(match[2].lower())
    if not match or not unit:
        raise UsageError(f"{name}: expected a size such as 64GiB or 96GB, found {text!r}")
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def parse_tokens(text: str, name: str = "ctx", maximum: int | None = None) -> int:
    """`32768`, `32k`, `1M` or `max` (where `maximum` is known) -> tokens. UsageError for 0, -1, 32.5k."""
    text = text.strip()
    if text.lower() == "max" and maximum:
        return maximum
    match = re.fullmatch(r"(\d+)([kKmM]?)", text)
    value = int(match[1]) * {"": 1, "k": KIB, "m": MIB}[match[2].lower()] if match else 0
    if value <= 0:
        allowed = "32768, 32k, 1M" + (" or max" if maximum else "")
        raise UsageError(f"{name}: expected a whole number of tokens such as {allowed}, found {text!r}")
    return value


def format_bytes(n: int) -> str:
    """1610612736 -> '1.50 GiB'. Three significant digits or so, binary units."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} B"


def short_bytes(n_bytes: int) -> str:
    """`604 MiB`, `20.8 GiB`: for where room is short."""
    return f"{n_bytes / GIB:.1f} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:.0f} MiB"


def format_bytes_both(n: int) -> str:
    """'72.00 GiB (77.31 GB)': both bases, for a line on which a verdict hangs."""
    return f"{n / GIB:.2f} GiB ({n / GB:.2f} GB)"


def format_seconds(seconds: float) -> str:
    """'0.42 s', '12.3 s', '2 min 20 s', '3 h 05 min'."""
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
