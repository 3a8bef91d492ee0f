"""Names of the files that hold saved KV caches: one for each conversation and model file."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path

SUFFIX = ".kv"
MODEL_CHARS = 8  # of the model file's fingerprint


def kv_path(folder: Path, conversation: str, model_fingerprint: str) -> Path:
    return folder / f"{_file_part(conversation)}-{model_fingerprint[:MODEL_CHARS]}{SUFFIX}"


def delete_saved_kv(folder: Path, conversation: str) -> None:
    """All saved caches of a conversation."""
    for path in folder.glob(f"{_file_part(conversation)}-{'?' * MODEL_CHARS}{SUFFIX}"):
        with suppress(OSError):
            path.unlink()


def _file_part(conversation: str) -> str:
    """The name itself where it can be a file's name."""
    plain = re.fullmatch(r"\w[\w.-]{0,99}", conversation, re.ASCII)
    return conversation if plain else hashlib.sha256(conversation.encode()).hexdigest()[:32]
