"""The user's settings: one TOML file in the platform's place for such files (`paths.config_dir()`), every key optional.

`DOCUMENTED` is the file with every key at its default and what it does; it is what gets written first. Changing a
setting from the app replaces its line and leaves the rest of the file, comments included, as it was.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from localinfer import paths
from localinfer.engine.params import SamplingParams
from localinfer.errors import UsageError
from localinfer.records import dataclass

DOCUMENTED = """\
# Settings of localinfer's terminal app. Delete a line to get its default back.

# Colours: "localinfer-dark", "localinfer-light", or a theme of the command palette (Ctrl+P).
theme = "localinfer-dark"

# Longest line of text in the conversation, in cells; 40 to 400.
text_width = 96

# Show where the memory goes, below the status line, where the window is high enough.
memory_bar = true

# Disk space for the KV caches of saved conversations, in MB (1000000 bytes): a conversation that is opened again then
# answers without reading its history anew. The one used longest ago goes first. 0: none are kept.
saved_kv_mb = 4000

# When a conversation gets longer than the context: "stop", or "drop" its oldest turns (the system prompt and the last
# question stay).
context_full = "stop"

# The system prompt that new conversations start with.
system_prompt = ""

# Whether models think before they answer, where their chat template knows a switch: "auto" (as it has it), "on", "off".
thinking = "auto"

# How the next token is chosen, unless the command line or the conversation (/set NAME VALUE) says otherwise.
temperature = 0.8        # 0: always the most likely token
top_k = 40               # keep this many of the most likely; 0: all
top_p = 0.95             # keep the fewest that have this probability together; 1.0: all
min_p = 0.05             # keep what has at least this share of the best one's probability; 0.0: all
repeat_penalty = 1.0     # above 1: what the last 64 tokens hold becomes less likely
presence_penalty = 0.0   # subtracted once from a token that the answer has already
frequency_penalty = 0.0  # subtracted for each time the answer has it already

# The longest answer, in tokens. 0: until the model ends or the context is full.
max_tokens = 0

# Guessing tokens ahead from what was said before: "auto", "off", or the most tokens a round (1 to 15).
draft = "auto"
"""
THINKING = ("auto", "on", "off")
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
            "max_tokens", "draft")  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What the keys of DOCUMENTED say."""

    theme: str = "localinfer-dark"
    text_width: int = 96
    memory_bar: bool = True
    saved_kv_mb: int = 4000
    context_full: str = "stop"
    system_prompt: str = ""
    thinking: str = "auto"
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int = 0
    draft: str = "auto"

    @property
    def sampling(self) -> dict[str, Any]:
        """The fields of SamplingParams that a user sets once for all conversations."""
        values = {name: getattr(self, name) for name in SAMPLING}
        return {**values, "max_tokens": self.max_tokens or None}


def settings_file() -> Path:
    return paths.config_dir() / "settings.toml"


def load_settings() -> Settings:
    """Read the file; defaults where there is none. UsageError names file, key and what was expected."""
    path = settings_file()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}", "correct the file, or delete it to get the defaults back") from error
    known = {field.name: type(field.default) for field in fields(Settings)}
    for key, value in data.items():
        if key not in known:
            raise UsageError(f"{path}: unknown key {key!r}", f"known are: {', '.join(known)}")
        if known[key] is float and type(value) is int:
            data[key] = float(value)
        elif type(value) is not known[key]:
            raise UsageError(f"{path}: {key}: expected {known[key].__name__}, found {value!r}")
    settings = Settings(**data)
    try:
        SamplingParams(**settings.sampling)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from error
    if not 40 <= settings.text_width <= 400:
        raise UsageError(f"{path}: text_width: expected 40 to 400, found {settings.text_width}")
    if settings.context_full not in ("stop", "drop"):
        raise UsageError(f'{path}: context_full: expected "stop" or "drop", found {settings.context_full!r}')
    if settings.thinking not in THINKING:
        raise UsageError(f'{path}: thinking: expected "auto", "on" or "off", found {settings.thinking!r}')
    if settings.saved_kv_mb < 0:
        raise UsageError(f"{path}: saved_kv_mb: expected 0 or more, found {settings.saved_kv_mb}")
    return settings


def settings_text() -> str:
    """The file as it is, or as it would be written first."""
    try:
        return settings_file().read_text(encoding="utf-8")
    except FileNotFoundError:
        return DOCUMENTED
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{settings_file()}: {error}") from error


def write_settings(text: str) -> None:
    """UsageError where that cannot be. What the text says is not looked at: `load_settings` does."""
    try:
        paths.make_parent(settings_file()).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {settings_file()}: {error.strerror}") from error


def save_setting(key: str, value: str | int | bool) -> None:
    """Set one key in the file, which is made where there is none. OSError where that cannot be."""
    path = settings_file()
    text = path.read_text(encoding="utf-8") if path.exists() else DOCUMENTED
    line = f"{key} = {_toml(value)}"
    text, n = re.subn(rf"^{re.escape(key)}\s*=.*$", lambda _: line, text, count=1, flags=re.MULTILINE)
    paths.make_parent(path).write_text(text if n else f"{line}\n{text}", encoding="utf-8")


def _toml(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
