"""The folder of saved conversations: list, search, open, copy, delete, export, import.

Listing and searching read raw bytes and look at few lines, so that hundreds of conversations answer at once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localinfer import paths
from localinfer.history import (
    ROLES,
    ROOT,
    SUFFIX,
    Conversation,
    HistoryError,
    SavedConversation,
    _title_from,
    fold,
    new_id,
    read_records,
)
from localinfer.records import dataclass
from localinfer.saved_kv import delete_saved_kv

EXPORT_FORMAT = "localinfer-conversation"
_MESSAGE, _TITLE, _PIN = b'\n{"t":"message"', b'\n{"t":"title"', b'\n{"t":"pin"'


@dataclass(frozen=True)
class ConversationInfo:
    """A row of the conversation list. `updated` is seconds since the epoch."""

    id: str
    title: str
    updated: float
    n_messages: int
    pinned: bool = False
    excerpt: str = ""  # where a search hit


class HistoryStore:
    """The conversations under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list(self, query: str = "") -> list[ConversationInfo]:
        """Pinned first, then the latest; with `query`, those that contain it (case ignored)."""
        needle = _needle(query)
        found = [info for path in self._files() if (info := _info(path, needle))]
        return sorted(found, key=lambda info: (not info.pinned, -info.updated))

    def new(self) -> SavedConversation:
        conversation_id = new_id()
        return SavedConversation(self._path(conversation_id), conversation_id)

    def open(self, conversation_id: str) -> SavedConversation:
        """Read and lock. HistoryError when it is gone or open in another copy of the program."""
        path = self._path(conversation_id)
        conversation = SavedConversation(path, conversation_id)
        records = list(read_records(path))
        conversation.lock()
        fold(conversation, iter(records))
        return conversation

    def read(self, conversation_id: str) -> Conversation:
        """Read only, lock nothing."""
        conversation = Conversation(conversation_id)
        fold(conversation, read_records(self._path(conversation_id)))
        return conversation

    def copy(self, source: Conversation) -> SavedConversation:
        """The same tree under a new id."""
        copy = self.new()
        if source.title:
            copy.rename(source.title)
        copy.configure(source.system, source.params)
        _replant(copy, [message_record(m) for m in source.messages.values()], source.leaf)
        return copy

    def delete(self, conversation_id: str) -> None:
        try:
            self._path(conversation_id).unlink()
        except OSError as error:
            raise HistoryError(f"cannot delete conversation {conversation_id}: {error.strerror}") from error
        delete_saved_kv(paths.kv_dir(), conversation_id)

    def export_json(self, conversation: Conversation) -> str:
        """The whole tree; `import_json` reads it back."""
        data = {
            "format": EXPORT_FORMAT, "version": 1, "id": conversation.id, "created": conversation.created,
            "title": conversation.shown_title, "system": conversation.system, "params": conversation.params,
            "leaf": conversation.leaf, "messages": [message_record(m) for m in conversation.messages.values()],
        }  # fmt: skip
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"

    def import_json(self, text: str) -> SavedConversation:
        """A new conversation from `export_json`'s text. HistoryError names what does not fit."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise HistoryError(f"import: expected JSON, found {error}") from error
        if (
            not isinstance(data, dict)
            or data.get("format") != EXPORT_FORMAT
            or not isinstance(data.get("messages"), list)
        ):
            raise HistoryError(f"import: expected an object with format {EXPORT_FORMAT!r} and messages")
        copy = self.new()
        try:
            if data.get("title"):
                copy.rename(str(data["title"]))
            copy.configure(str(data.get("system") or ""), dict(data.get("params") or {}))
            _replant(copy, data["messages"], data.get("leaf", ROOT))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            copy.close()
            copy.file_path.unlink(missing_ok=True)
            raise HistoryError(f"import: a message does not fit into the tree: {error}") from error
        return copy

    def _files(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from self.folder.glob(f"*{SUFFIX}")

    def _path(self, conversation_id: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", conversation_id):
            raise HistoryError(f"expected a conversation id such as {new_id()}, found {conversation_id!r}")
        return self.folder / f"{conversation_id}{SUFFIX}"


def export_markdown(conversation: Conversation) -> str:
    """The branch on screen as a document."""
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(conversation.created))
    parts = [f"# {conversation.shown_title}", f"*{started}*"]
    if conversation.system:
        parts.append("## System\n\n" + conversation.system)
    for message in conversation.path():
        name = message.model if message.role == "assistant" and message.model else message.role.capitalize()
        parts.append(f"## {name}\n\n{message.text.strip()}")
    return "\n\n".join(parts) + "\n"


def message_record(message: Any) -> dict[str, Any]:
    return {"id": message.id, "parent": message.parent, "role": message.role, "text": message.text,
            "thinking": message.thinking, "time": message.time, "model": message.model, "state": message.state,
            "stats": message.stats}  # fmt: skip


def _replant(target: SavedConversation, records: list[dict[str, Any]], leaf: int) -> None:
    """Add foreign messages in order; checks the tree in memory before the first byte is written."""
    trial = Conversation()
    for record in records:
        if record["role"] not in ROLES:
            raise ValueError(f"role {record['role']!r}")
        trial.apply({**record, "t": "message"})
    trial.apply({"t": "leaf", "id": leaf or trial.leaf})
    for record in records:
        target._record({**record, "t": "message"})
    target.select(trial.leaf)


@dataclass(frozen=True)
class _Needle:
    """What a search looks for: in a file's bytes, where it stands inside a JSON string, and in a text."""

    raw: bytes
    text: str


def _needle(query: str) -> _Needle | None:
    text = query.strip()
    raw = json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "replace").lower()
    return _Needle(raw, text.lower()) if text else None


def _info(path: Path, needle: _Needle | None) -> ConversationInfo | None:
    try:
        data = path.read_bytes()
        updated = path.stat().st_mtime
    except OSError:
        return None  # deleted meanwhile
    excerpt = ""
    if needle is not None:
        hit = _search(data, needle)
        if hit is None:
            return None
        excerpt = hit
    title = _last_record(data, _TITLE).get("text") or _title_from(iter([_first_user_text(data)]))
    return ConversationInfo(
        path.name.removesuffix(SUFFIX), str(title), updated, data.count(_MESSAGE),
        bool(_last_record(data, _PIN).get("on")), excerpt,
    )  # fmt: skip


def _search(data: bytes, needle: _Needle) -> str | None:
    """The text around the first hit inside a "text", or None."""
    lowered = data.lower()  # ASCII only, at memory speed; other letters are matched as they are written
    end = 0
    while (hit := lowered.find(needle.raw, end)) >= 0:
        start = data.rfind(b"\n", 0, hit) + 1
        end = data.find(b"\n", hit) % (len(data) + 1)  # a torn last line has no end: then up to the file's
        text = str(_parse(data[start:end]).get("text", ""))
        where = text.lower().find(needle.text)
        if where >= 0:
            return " ".join(text[max(0, where - 24) : where + 60].split())
    return None


def _last_record(data: bytes, mark: bytes) -> dict[str, Any]:
    at = data.rfind(mark)
    return _parse(data[at + 1 : data.find(b"\n", at + 1)]) if at >= 0 else {}


def _first_user_text(data: bytes) -> str:
    at = -1
    while (at := data.find(_MESSAGE, at + 1)) >= 0:
        record = _parse(data[at + 1 : data.find(b"\n", at + 1)])
        if record.get("role") == "user":
            return str(record.get("text", ""))
    return ""


def _parse(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
