"""A text through $VISUAL or $EDITOR and back."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from localinfer.errors import UsageError


def edit_text(text: str, name: str = "message.md") -> str:
    """The text as the editor left it. UsageError when there is no editor or it failed."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        try:
            code = subprocess.call([*shlex.split(command), str(path)])
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot start the editor {command!r}: {error}", "set $EDITOR") from error
        if code:
            raise UsageError(f"the editor {command!r} ended with status {code}")
        return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
