"""Files in which the program keeps what it learned. Each is replaced whole: a reader sees the old or the new one."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from localinfer.paths import make_parent


def read_state(path: Path) -> dict[str, Any]:
    """A JSON object; empty where the file is absent or damaged."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):  # as if nothing was learned; the next write makes it anew
        return {}
    return content if isinstance(content, dict) else {}


def replace_state(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object. OSError."""
    replace_file(path, json.dumps(content, indent=1, sort_keys=True).encode())


def replace_file(path: Path, data: bytes) -> None:
    """Write bytes that only the user may read. OSError; nothing is left beside the old file then."""
    new = make_parent(path).with_name(f"{path.name}.{os.getpid()}-{time.monotonic_ns()}.new")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(data)
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def positive(value: Any) -> float | None:
    """The number, where it is one above 0: files in the state folder may hold anything."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None
