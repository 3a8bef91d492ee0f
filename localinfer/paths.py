"""Where localinfer keeps its files: the platform's own places, each overridable by one environment variable.

LOCALINFER_HOME puts everything under one folder (tests, portable installs). Nothing is created by asking for a path;
who writes, calls `make_parent`.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from platformdirs.api import PlatformDirsABC

HOME_VARIABLE = "LOCALINFER_HOME"


def data_dir() -> Path:
    """Downloaded models and saved conversations: what a user would miss."""
    return _home("data") or Path(_dirs().user_data_dir)


def models_dir() -> Path:
    """Downloaded .gguf files."""
    return data_dir() / "models"


def sessions_dir() -> Path:
    """Saved conversations."""
    return data_dir() / "sessions"


def state_dir() -> Path:
    """What the program learned about this machine: the planner's ledger, measured speeds, logs."""
    return _home("state") or Path(_dirs().user_state_dir)


def config_dir() -> Path:
    """Settings a user may edit."""
    return _home("config") or Path(_dirs().user_config_dir)


def cache_dir() -> Path:
    """What can be made again at any time."""
    return _home("cache") or Path(_dirs().user_cache_dir)


def ledger_file() -> Path:
    """Predicted against measured memory, one JSON object a line (planner/ledger.py)."""
    return state_dir() / "ledger.jsonl"


def measured_speed_file() -> Path:
    """Bandwidth and efficiency that `bench` measured on this machine (planner/efficiency.py)."""
    return state_dir() / "measured_speed.json"


def make_parent(path: Path) -> Path:
    """Create the folder that `path` lies in, private to the user; returns `path`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _home(kind: str) -> Path | None:
    home = os.environ.get(HOME_VARIABLE)
    return Path(home).expanduser() / kind if home else None


@cache
def _dirs() -> PlatformDirsABC:
    from platformdirs import PlatformDirs  # 20 ms that `fit --json` on a named device does not need

    return PlatformDirs("localinfer", appauthor=False)
