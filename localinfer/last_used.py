"""When a model was last loaded: one small JSON file {path: seconds since the epoch}, replaced as a whole."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from localinfer import paths
from localinfer.state_file import read_state, replace_state

MOST = 500  # entries kept, the newest


def note_use(model: str | os.PathLike[str]) -> None:
    """It is loaded now. This only informs: where nothing can be written, nothing is."""
    path = paths.last_used_file()
    times = last_used()
    times[_key(Path(model))] = time.time()
    newest = dict(sorted(times.items(), key=lambda item: item[1])[-MOST:])
    with suppress(OSError):
        replace_state(path, newest)


def last_used() -> dict[str, float]:
    """By real path. Empty where nothing was loaded yet, or the file is damaged."""
    content = read_state(paths.last_used_file())
    return {k: float(v) for k, v in content.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


def used_at(model: Path, times: dict[str, float]) -> float | None:
    return times.get(_key(model))


def _key(model: Path) -> str:
    return str(model.absolute())
