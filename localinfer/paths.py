"""Where localinfer keeps its files: the platform's own places, each overridable by one environment variable.

LOCALINFER_HOME puts everything under one folder (tests, portable installs). Nothing is created by asking for a path;
who writes, calls `make_parent`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HOME_VARIABLE = "LOCALINFER_HOME"


def data_dir() -> Path:
    """Downloaded models and saved conversations: what a user would miss."""
    return _place("data")


def models_dir() -> Path:
    """Downloaded .gguf files."""
    return data_dir() / "models"


def sessions_dir() -> Path:
    """Saved conversations."""
    return data_dir() / "sessions"


def state_dir() -> Path:
    """What the program learned about this machine: the planner's ledger, measured speeds, logs."""
    return _place("state")


def config_dir() -> Path:
    """Settings a user may edit."""
    return _place("config")


def cache_dir() -> Path:
    """What can be made again at any time."""
    return _place("cache")


def kv_dir() -> Path:
    """Saved KV caches of conversations."""
    return cache_dir() / "kv"


def mean_keys_file(fingerprint: str) -> Path:
    """What the keys of a model file have in common (backends/cpu/key_offsets.py)."""
    return cache_dir() / "mean_keys" / f"{fingerprint}.f32"


def ledger_file() -> Path:
    """Predicted against measured memory, one JSON object a line (planner/ledger.py)."""
    return state_dir() / "ledger.jsonl"


def measured_speed_file() -> Path:
    """Bandwidth and efficiency that `bench` measured on this machine (planner/efficiency.py)."""
    return state_dir() / "measured_speed.json"


def kv_cost_file() -> Path:
    """What `eval --compare-kv` measured, by model file and KV type (kv_cost.py)."""
    return state_dir() / "kv_cost.json"


def last_used_file() -> Path:
    """When each model was last loaded (last_used.py)."""
    return state_dir() / "last_used.json"


def make_parent(path: Path) -> Path:
    """Create the folder that `path` lies in, private to the user; returns `path`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


NAME = "localinfer"

# https://specifications.freedesktop.org/basedir-spec/latest/
_XDG = {
    "data": ("XDG_DATA_HOME", ".local/share"),
    "state": ("XDG_STATE_HOME", ".local/state"),
    "config": ("XDG_CONFIG_HOME", ".config"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
}


def _place(kind: str) -> Path:
    """The folder for data, state, config or cache."""
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).expanduser() / kind
    if sys.platform == "darwin":
        return Path.home() / "Library" / ("Caches" if kind == "cache" else "Application Support") / NAME
    if os.name == "nt":
        local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        return Path(local) / NAME / ("Cache" if kind == "cache" else "")
    variable, usual = _XDG[kind]
    named = os.environ.get(variable, "")
    return (Path(named) if os.path.isabs(named) else Path.home() / usual) / NAME
