"""`localinfer models`: what is on this machine. `localinfer rm NAME`: delete one."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from localinfer.cli.styled import Span, print_columns, print_line
from localinfer.cli.terminal_text import one_line
from localinfer.errors import UsageError
from localinfer.last_used import last_used, used_at
from localinfer.other_programs import program_name
from localinfer.store import (
    LocalModel,
    find_model,
    find_models,
    how_to_delete_it,
    partial_downloads,
    remove,
    unreadable_folders,
)
from localinfer.units import format_bytes


def add_models_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "models",
        help="models on this machine",
        description="List models: localinfer's own folder, and those that Hugging Face, LM Studio and Ollama have.",
    )
    parser.add_argument("--json", action="store_true")


def add_rm_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "rm",
        help="delete a model",
        description="Delete a model that `pull` brought.",
    )
    parser.add_argument("name", metavar="NAME", help="a name from `localinfer models`, or demo")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run_models(args: argparse.Namespace) -> int:
    models = find_models()
    times = last_used()
    if args.json:
        listed = [as_json(m, used_at(m.path, times)) for m in models]
        partial = [{"path": str(p.path), "repair": p.repair} for p in partial_downloads()]
        print(json.dumps({"models": listed, "partial": partial}))
        return 0
    if not models:
        print("no models yet: localinfer pull demo", file=sys.stderr)
    rows: list[list[Span]] = []
    for m in models:
        used = used_at(m.path, times)
        when = f"used {_day(used)}" if used else "not used yet"
        trouble = f"{m.trouble}: {how_to_delete_it(m)}, then pull again" if m.trouble else ""
        rows.append([one_line(m.name), format_bytes(m.n_bytes), program_name(m.source), when, (trouble, "yellow")])
    if rows:
        print_columns(rows, "<><<<")
    for source, folder in unreadable_folders():
        print(f"{program_name(source)}'s models cannot be read: {folder}", file=sys.stderr)
    for partial_download in partial_downloads():
        size = format_bytes(partial_download.path.stat().st_size)
        print_line(f"{partial_download.path.name}: unfinished download, {size}: {partial_download.repair} to go on")
    return 0


def as_json(m: LocalModel, used: float | None) -> dict[str, Any]:
    return {
        "name": m.name, "path": str(m.path), "bytes": m.n_bytes, "source": m.source, "modified": m.modified,
        "last_used": used, "trouble": m.trouble,
    }  # fmt: skip


def run_rm(args: argparse.Namespace) -> int:
    from localinfer.demo_model import FILE_NAME, NAME

    name = FILE_NAME.removesuffix(".gguf") if args.name == NAME else args.name
    model = find_model(name)
    if model is None:
        raise UsageError(f"{args.name}: no local model of that name", "localinfer models")
    if not args.yes and not _confirmed(model):
        return 0
    print(f"deleted {model.name}: {format_bytes(remove(model))} freed", file=sys.stderr)
    return 0


def _confirmed(model: LocalModel) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(f"{model.name}: deleting asks first, and stdin is no terminal", "add --yes")
    return input(f"delete {model.path} ({format_bytes(model.n_bytes)})? [y/N] ").strip().lower() in ("y", "yes")


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))
