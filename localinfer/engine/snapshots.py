"""Saved KV caches of conversations: written when nothing else is to do, read where that is faster than prefilling.

One file a conversation and model, in a folder with a limit: the file used longest ago goes first. A file belongs to
exactly one model file, quantization, context, KV type, RoPE and page layout; any other is refused, and the prompt is
read as if there were none.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localinfer.errors import FormatError
from localinfer.formats.fingerprint import model_fingerprint
from localinfer.formats.kv_file import UNFINISHED, Interrupted, KVFile, write_kv_file
from localinfer.kv.prefix import common_prefix
from localinfer.paths import make_parent
from localinfer.saved_kv import SUFFIX, kv_path

if TYPE_CHECKING:
    from localinfer.engine.conversation import Conversation
    from localinfer.formats.gguf import GGUFFile
    from localinfer.kv.spec import KVSpec
    from localinfer.models.config import ModelConfig

RESTORE_BYTES_S = 400e6  # until one has been measured
WORTHWHILE_S = 0.3  # of prefilling that a file must save
STALE_S = 600  # unfinished files older than this were left by a process that died


def identity_of(file: GGUFFile, config: ModelConfig, spec: KVSpec, layout: str) -> dict[str, str]:
    """What a saved cache must agree on to be used."""
    return {
        "model file": model_fingerprint(file),
        "context": str(spec.n_ctx),
        "KV types": ",".join(dict.fromkeys(f"{layer.k_type}/{layer.v_type}" for layer in spec.layers if layer.n_pages)),
        "RoPE": _digest(repr([layer.rope for layer in config.layers])),
        "layers": _digest(repr(spec.layers)),
        "layout": layout,
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Snapshots:
    """`limit_bytes` bounds the folder. Nothing here fails a turn: what cannot be read or written is as if absent."""

    def __init__(self, folder: Path, identity: dict[str, str], limit_bytes: int) -> None:
        self._folder = folder
        self._identity = identity
        self._limit = limit_bytes
        self._restore_bytes_s = RESTORE_BYTES_S

    def path(self, key: str) -> Path:
        return kv_path(self._folder, key, self._identity["model file"])

    def save(
        self, key: str, conversation: Conversation, token_s: float, go_on: Callable[[], bool] = lambda: True
    ) -> bool:
        """Write the running timeline, if reading it back is going to be worth it; was it written?"""
        kv: Any = conversation.kv
        n_bytes = _used_bytes(kv)
        if self._gain(conversation.length, token_s, n_bytes) < WORTHWHILE_S or n_bytes > self._limit:
            return False
        extra = {"token_s": token_s, "first_pages": kv.first_pages()}
        try:
            path = make_parent(self.path(key))
            self._trim(self._limit - n_bytes, spared=path)
            write_kv_file(path, self._identity, conversation.tokens, kv.pieces(), extra, go_on)
        except (OSError, Interrupted):
            return False
        return True

    def restore(self, key: str, conversation: Conversation, ids: Sequence[int], stored: int) -> str:
        """Go on from the saved cache where that beats computing ids[stored:]; returns why a file was refused, or ''."""
        try:
            with KVFile.open(self.path(key)) as file:
                return self._restore(file, conversation, ids, stored)
        except OSError:
            return ""
        except FormatError as error:
            return error.message

    def _restore(self, file: KVFile, conversation: Conversation, ids: Sequence[int], stored: int) -> str:
        differs = [what for what, value in self._identity.items() if file.identity.get(what) != value]
        if differs:
            return f"saved with another {' and another '.join(differs)}"
        kv: Any = conversation.kv
        usable = common_prefix(file.tokens, ids[:-1])
        if kv.spec.has_state and usable < len(file.tokens):
            return ""
        token_s = float(file.extra.get("token_s", 0.0))
        if self._gain(usable - stored, token_s, file.n_bytes) <= 0:
            return ""
        start = time.perf_counter()
        if kv.restore(conversation.tokens, len(file.tokens), file.extra.get("first_pages", []), file.piece):
            conversation.tokens[:] = file.tokens
            self._restore_bytes_s = file.n_bytes / max(1e-6, time.perf_counter() - start)
            with suppress(OSError):
                os.utime(file.path)  # used now: others go first
        return ""

    def _gain(self, n_tokens: int, token_s: float, n_bytes: int) -> float:
        """Seconds won by reading n_bytes instead of computing n_tokens."""
        return n_tokens * token_s - n_bytes / self._restore_bytes_s

    def _trim(self, limit: int, spared: Path) -> None:
        """Delete the files used longest ago until the others take at most `limit` bytes."""
        _remove_stale(self._folder)
        total = 0
        for path, size in sorted(_sizes(self._folder), key=lambda f: -f[0].stat().st_mtime):
            if path == spared:
                continue
            total += size
            if total > limit:
                path.unlink(missing_ok=True)
                total -= size


def _sizes(folder: Path) -> Iterator[tuple[Path, int]]:
    return ((path, path.stat().st_size) for path in folder.glob(f"*{SUFFIX}"))


def _remove_stale(folder: Path) -> None:
    for path in folder.glob(f"*{UNFINISHED}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


def _used_bytes(kv: Any) -> int:
    """About what a file of the running timeline takes."""
    spec: KVSpec = kv.spec
    pages = sum(min(layer.n_tokens, kv.length) * layer.token_bytes for layer in spec.layers)
    return pages + sum(layer.state_bytes for layer in spec.layers)
