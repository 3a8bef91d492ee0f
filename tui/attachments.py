"""`@path` in a message attaches a text file: what it completes to, and what the model gets to read."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.markup import escape

from localinfer.errors import UsageError
from localinfer.records import dataclass

MAX_BYTES = 512 * 1024
MAX_COMPLETIONS = 50
_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|(\S+))")
_BEING_TYPED = re.compile(r"(?<!\S)@(\S*)$")


@dataclass(frozen=True)
class Attachment:
    """A file as it stands in a message."""

    name: str
    text: str

    @property
    def likely_tokens(self) -> int:
        """A guess from its length, for when there is no tokenizer to ask."""
        return max(1, len(self.text.encode("utf-8", "replace")) // 4)


def attach(message: str, folder: Path | None = None) -> tuple[str, list[Attachment]]:
    """The message with the contents of each file that it mentions below it. UsageError for one that cannot be read.

    A word with an @ that names no file stays what it is (`@alice`).
    """
    found: dict[str, Attachment] = {}
    for quoted, bare in _MENTION.findall(message):
        name = quoted or bare.rstrip(".,;:!?)")
        path = (folder or Path.cwd()) / Path(name).expanduser()
        if name not in found and path.is_file():
            found[name] = Attachment(name, _read(path, name))
    parts = [message, *(f"`{a.name}`:\n{_fenced(a)}" for a in found.values())]
    return "\n\n".join(parts), list(found.values())


async def attached_words(message: str, count: Callable[[str], Awaitable[int | None]]) -> str:
    """`notes.md 1,234 tokens` for each file that a message attaches; '' where it attaches none. `count` is the open
    model's, and gives None where no model is open: then the figure is a guess."""
    try:
        _, found = await asyncio.to_thread(attach, message)
    except UsageError as error:
        return escape(error.message)
    words = []
    for a in found:
        n = await count(_fenced(a))
        tokens = f"{n:,}" if n is not None else f"about {a.likely_tokens:,}"
        words.append(f"{escape(a.name)} {tokens} tokens")
    return " · ".join(words)


def _read(path: Path, name: str) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UsageError(f"@{name}: expected at most {MAX_BYTES // 1024} KiB, found {size // 1024} KiB")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"@{name}: {error.strerror}") from error
    if b"\0" in data[:8192]:
        raise UsageError(f"@{name}: expected a text file, found binary data")
    return data.decode("utf-8", "replace")


def _fenced(attachment: Attachment) -> str:
    longest = max((len(run) for run in re.findall(r"`+", attachment.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{Path(attachment.name).suffix[1:]}\n{attachment.text.rstrip()}\n{fence}"


def path_being_typed(text_before_cursor: str) -> str | None:
    """What stands behind an @ at the cursor, or None."""
    match = _BEING_TYPED.search(text_before_cursor)
    return match[1] if match else None


def path_completions(typed: str) -> list[str]:
    """Files and folders that what is typed may become, folders with a slash; hidden ones only when asked for."""
    folder, _, start = typed.rpartition("/")
    root = Path(folder + "/" if folder or typed.startswith("/") else ".").expanduser()
    try:
        with os.scandir(root) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries if entry.name.startswith(start)]
    except OSError:
        return []
    prefix = typed[: len(typed) - len(start)]
    names = [prefix + name + "/" * is_dir for name, is_dir in found if start or not name.startswith(".")]
    return sorted(names)[:MAX_COMPLETIONS]
