"""Saved conversations: one append-only JSON-lines file each, holding a tree of messages.

A conversation is a fold over its records, so nothing is ever rewritten: an answer grows by `part` records while it
streams, an edit or a regeneration is a further child of the same parent, and the branch on screen is a `leaf` record.
What was flushed survives the death of the program; a line torn by that death is skipped when reading.

Records, by key "t": open, message, part, end, leaf, title, pin, settings. Ids count from 1; parent 0 is the root.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from localinfer.errors import UsageError
from localinfer.records import dataclass, field

try:
    import fcntl
except ImportError:  # Windows: two copies of the program are then not told apart
    fcntl = None  # type: ignore[assignment]

FORMAT_VERSION = 1
ROOT = 0
ROLES = ("system", "user", "assistant", "tool")
SUFFIX = ".jsonl"
TITLE_CHARS = 60


class HistoryError(UsageError):
    """A conversation that cannot be read or written: gone, locked by another copy, not ours, disk full."""


class ConversationBusy(HistoryError):
    """Another copy of the program writes to this conversation."""


@dataclass
class ChatMessage:
    """One node of the tree. `state` is the reason an answer ended, or 'partial' until then, or 'failed'."""

    id: int
    parent: int
    role: str
    text: str = ""
    thinking: str = ""
    time: float = 0.0
    model: str = ""
    state: str = ""
    stats: dict[str, Any] = field(default_factory=dict)


class Conversation:
    """A tree of messages and what belongs to it, in memory; `apply` folds one record in."""

    def __init__(self, conversation_id: str = "", created: float = 0.0) -> None:
        self.id = conversation_id or new_id()
        self.created = created or time.time()
        self.title = ""
        self.pinned = False
        self.system = ""
        self.params: dict[str, Any] = {}
        self.messages: dict[int, ChatMessage] = {}
        self.children: dict[int, list[int]] = {ROOT: []}
        self.leaf = ROOT

    def apply(self, record: dict[str, Any]) -> None:
        """Fold one record in. KeyError, TypeError or ValueError for a record that makes no sense here."""
        kind = record["t"]
        if kind == "message":
            self._apply_message(record)
        elif kind == "part":
            message = self.messages[record["id"]]
            if record.get("kind") == "thinking":
                message.thinking += str(record["text"])
            else:
                message.text += str(record["text"])
        elif kind == "end":
            message = self.messages[record["id"]]
            message.state = str(record["state"])
            message.stats = dict(record.get("stats") or {})
            if "text" in record:
                message.text = str(record["text"])
        elif kind == "leaf":
            if record["id"] != ROOT and record["id"] not in self.messages:
                raise ValueError(f"leaf {record['id']!r} is not a message")
            self.leaf = record["id"]
        elif kind == "title":
            self.title = str(record["text"])
        elif kind == "pin":
            self.pinned = bool(record["on"])
        elif kind == "settings":
            self.system = str(record.get("system", self.system))
            self.params = dict(record.get("params", self.params))
        elif kind == "open":
            self.id, self.created = str(record["id"]), float(record["time"])
        # a kind from a later version is left alone: the file stays readable

    def _apply_message(self, record: dict[str, Any]) -> None:
        message_id, parent = record["id"], record["parent"]
        known = isinstance(message_id, int) and message_id > ROOT and parent in self.children
        if not known or message_id in self.messages or record["role"] not in ROLES:
            raise ValueError(f"message {message_id!r} under {parent!r} does not fit into the tree")
        self.messages[message_id] = ChatMessage(
            message_id, parent, record["role"], str(record.get("text", "")), str(record.get("thinking", "")),
            float(record.get("time", 0.0)), str(record.get("model", "")), str(record.get("state", "")),
            dict(record.get("stats") or {}),
        )  # fmt: skip
        self.children[message_id] = []
        self.children[parent].append(message_id)
        self.leaf = message_id

    def next_id(self) -> int:
        return max(self.messages, default=ROOT) + 1

    def path(self, leaf: int | None = None) -> list[ChatMessage]:
        """The messages from the first to `leaf` (default: the branch on screen)."""
        found: list[ChatMessage] = []
        node = self.leaf if leaf is None else leaf
        while node != ROOT:
            found.append(self.messages[node])
            node = self.messages[node].parent
        return found[::-1]

    def siblings(self, message_id: int) -> list[int]:
        """The ids of all children of this message's parent, oldest first, itself included."""
        return self.children[self.messages[message_id].parent]

    def newest_leaf(self, message_id: int) -> int:
        """Where one lands when stepping onto a branch: its newest child, and so on down."""
        while self.children[message_id]:
            message_id = self.children[message_id][-1]
        return message_id

    @property
    def shown_title(self) -> str:
        return self.title or _title_from(m.text for m in self.messages.values() if m.role == "user")


def new_id() -> str:
    """Sorts by time, and two programs started in the same second differ."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)


def _title_from(user_texts: Iterator[str]) -> str:
    first = next((text.strip() for text in user_texts if text.strip()), "New conversation")
    line = " ".join(first.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


class SavedConversation(Conversation):
    """A conversation that writes each change to its file before (or, when the disk refuses, as soon as) it can.

    The file appears with the first message. `write_error` is the last failure to write, empty when all is on disk;
    what could not be written is kept and tried again with the next change.
    """

    def __init__(self, path: Path, conversation_id: str = "", created: float = 0.0) -> None:
        super().__init__(conversation_id, created)
        self.file_path = path
        self.write_error = ""
        self._file: FileIO | None = None
        self._backlog: list[dict[str, Any]] = []

    # changes: each returns after the record was folded in and offered to the disk

    def add(self, parent: int, role: str, text: str = "", model: str = "", state: str = "") -> ChatMessage:
        """A new child of `parent`, which becomes the leaf."""
        message_id = self.next_id()
        self._record({"t": "message", "id": message_id, "parent": parent, "role": role, "text": text,
                      "time": round(time.time(), 3), "model": model, "state": state})  # fmt: skip
        return self.messages[message_id]

    def grow(self, message_id: int, text: str, kind: str = "answer") -> None:
        if text:
            self._record({"t": "part", "id": message_id, "text": text, "kind": kind})

    def end(self, message_id: int, state: str, stats: dict[str, Any] | None = None, text: str | None = None) -> None:
        """Close an answer; the whole text goes on one line (parts are for a crash: a search may fall between two)."""
        record: dict[str, Any] = {"t": "end", "id": message_id, "state": state, "stats": stats or {}}
        record["text"] = self.messages[message_id].text if text is None else text
        self._record(record, sync=True)

    def select(self, leaf: int) -> None:
        if leaf != self.leaf:
            self._record({"t": "leaf", "id": leaf})

    def rename(self, title: str) -> None:
        self._record({"t": "title", "text": " ".join(title.split())})

    def pin(self, on: bool) -> None:
        self._record({"t": "pin", "on": on})

    def configure(self, system: str, params: dict[str, Any]) -> None:
        if (system, params) != (self.system, self.params):
            self._record({"t": "settings", "system": system, "params": params})

    def retry(self) -> None:
        """Offer to the disk again what it refused."""
        if self._backlog and self.messages:
            self._write([])

    def close(self) -> None:
        self.retry()
        if self._file is not None:
            self._file.close()
            self._file = None

    # the file

    def _record(self, record: dict[str, Any], sync: bool = False) -> None:
        self.apply(record)
        if not self.messages:  # nothing said yet: a title or a setting waits for the first message
            self._backlog.append(record)
            return
        self._write([record], sync)

    def _write(self, records: list[dict[str, Any]], sync: bool = False) -> None:
        pending = self._backlog + records
        try:
            file = self._file or self.lock()
            if file.tell() == 0:
                pending = [self._open_record(), *pending]
            start = file.tell()
            try:
                _write_all(file, b"".join(_line(record) for record in pending))
                if sync:
                    os.fsync(file.fileno())
            except OSError:
                self._cut(file, start)
                raise
        except (OSError, HistoryError) as error:
            self.write_error = getattr(error, "strerror", None) or str(error)
            self._backlog = [record for record in pending if record["t"] != "open"]
            return
        self._backlog, self.write_error = [], ""

    def _cut(self, file: FileIO, length: int) -> None:
        """A refused write may have left half a line: take it back, so that a retry does not double it."""
        try:
            file.truncate(length)
            file.seek(length)
        except OSError:
            file.close()
            self._file = None

    def _open_record(self) -> dict[str, Any]:
        return {"t": "open", "v": FORMAT_VERSION, "id": self.id, "time": round(self.created, 3)}

    def lock(self) -> FileIO:
        """Open the file for appending, as its only writer. HistoryError when another copy has it open."""
        self.file_path.parent.mkdir(parents=True, exist_ok=True)
        file = FileIO(self.file_path, "ab")  # held open: the lock lives as long as it does
        if fcntl is not None:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                raise ConversationBusy(
                    "this conversation is open in another copy of localinfer",
                    "close it there, or continue here in a copy",
                ) from None
        if file.tell() and not _ends_with_newline(self.file_path):
            file.write(b"\n")  # the last line was torn: fence it off
        self._file = file
        return file


def _write_all(file: FileIO, data: bytes) -> None:
    """Unbuffered, so that no unwritten rest survives an error; a short write is followed up until the disk refuses."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def _line(record: dict[str, Any]) -> bytes:
    # raw UTF-8 keeps the file searchable; lone surrogates, which a paste may hold, cannot be encoded
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _ends_with_newline(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; lines that are torn or not ours are passed over. HistoryError when it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror or error}", "the conversation may have been deleted") from error
    for line in data.split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("t"), str):
            yield record


def fold(conversation: Conversation, records: Iterator[dict[str, Any]]) -> int:
    """Apply records, passing over those that do not fit; how many were passed over."""
    skipped = 0
    for record in records:
        try:
            conversation.apply(record)
        except (KeyError, TypeError, ValueError, AttributeError):
            skipped += 1
    for message in conversation.messages.values():
        if message.state == "partial":  # the program died while it streamed
            message.state = "interrupted"
    return skipped
