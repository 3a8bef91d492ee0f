"""A text through $VISUAL or $EDITOR and back."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localinfer.errors import UsageError


@contextmanager
def _interrupts_passed_by() -> Iterator[None]:
    """Ctrl+C is the editor's while it runs: the terminal sends it to both."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)  # a handler, for what is ignored the editor would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def edit_text(text: str, name: str = "message.md") -> str:
    """The text as the editor left it. UsageError when there is no editor or it failed."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        try:
            with _interrupts_passed_by():
                code = subprocess.call([*shlex.split(command), str(path)])
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot start the editor {command!r}: {reason}", "set $VISUAL or $EDITOR") from error
        if code:
            raise UsageError(f"the editor {command!r} ended with status {code}", "the text is as it was before")
        return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
