"""When a model was last loaded: one small JSON file {path: seconds since the epoch}, replaced as a whole."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from localinfer import paths

MOST = 500  # entries kept, the newest


def note_use(model: str | os.PathLike[str]) -> None:
    """It is loaded now. This only informs: where nothing can be written, nothing is."""
    path = paths.last_used_file()
    times = last_used()
    times[_key(Path(model))] = time.time()
    newest = dict(sorted(times.items(), key=lambda item: item[1])[-MOST:])
    with suppress(OSError):
        paths.make_parent(path)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(json.dumps(newest), "utf-8")
        os.replace(new, path)


def last_used() -> dict[str, float]:
    """By real path. Empty where nothing was loaded yet, or the file is damaged."""
    try:
        content = json.loads(paths.last_used_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {k: float(v) for k, v in content.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


def used_at(model: Path, times: dict[str, float]) -> float | None:
    return times.get(_key(model))


def _key(model: Path) -> str:
    return str(model.absolute())
