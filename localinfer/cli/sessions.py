"""`localinfer sessions [list|show|export|rm]`: saved conversations."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localinfer import paths
from localinfer.cli.terminal_text import printable
from localinfer.errors import UsageError
from localinfer.history import Conversation
from localinfer.history_store import ConversationInfo, HistoryStore, export_markdown


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("sessions", help="saved conversations", description=__doc__)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="newest first, pinned ones on top (the default)")
    listing.add_argument("query", nargs="?", default="", metavar="TEXT", help="only those that contain it")
    listing.add_argument("--json", action="store_true")
    show = actions.add_parser("show", help="print one")
    show.add_argument("id", metavar="ID", help="an id, or the start of one")
    export = actions.add_parser("export", help="write one to a file or stdout")
    export.add_argument("id", metavar="ID")
    export.add_argument("--format", choices=("md", "json"), default="md")
    export.add_argument("-o", "--output", metavar="FILE", help="default: stdout")
    remove = actions.add_parser("rm", help="delete one or more")
    remove.add_argument("ids", metavar="ID", nargs="+")


def run(args: argparse.Namespace) -> int:
    store = HistoryStore(paths.sessions_dir())
    match args.action:
        case "show":
            print(printable(export_markdown(_read(store, args.id))))
        case "export":
            _export(store, args)
        case "rm":
            for wanted in [_full_id(store, i) for i in args.ids]:
                store.delete(wanted)
                print(f"deleted {wanted}", file=sys.stderr)
        case _:
            _list(store.list(getattr(args, "query", "")), getattr(args, "json", False))
    return 0


def _list(found: list[ConversationInfo], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(info) for info in found]))
        return
    if not found:
        print("no conversations", file=sys.stderr)
    for info in found:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated))
        pin = "*" if info.pinned else " "
        print(f"{info.id} {pin} {day}  {info.n_messages:4} messages  {printable(info.title)}")


def _export(store: HistoryStore, args: argparse.Namespace) -> None:
    conversation = _read(store, args.id)
    text = export_markdown(conversation) if args.format == "md" else store.export_json(conversation)
    if args.output is None:
        print(text, end="" if text.endswith("\n") else "\n")
        return
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output: {args.output}: {error.strerror}") from None


def _read(store: HistoryStore, wanted: str) -> Conversation:
    return store.read(_full_id(store, wanted))


def _full_id(store: HistoryStore, wanted: str) -> str:
    """UsageError where no conversation, or more than one, starts so."""
    known = [info.id for info in store.list()]
    fitting = [i for i in known if i == wanted] or [i for i in known if i.startswith(wanted)]
    if len(fitting) != 1:
        problem = f"{len(fitting)} conversations start so" if fitting else "no such conversation"
        raise UsageError(f"{wanted}: {problem}", "localinfer sessions list")
    return fitting[0]
