"""`localinfer models`: what is on this machine. `localinfer rm NAME`: delete one."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from localinfer.errors import UsageError
from localinfer.store import LocalModel, find_model, find_models, partial_downloads, remove
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
        "rm", help="delete a model", description="Delete a model of localinfer's own folder."
    )
    parser.add_argument("name", metavar="NAME", help="a name from `localinfer models`, or demo")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run_models(args: argparse.Namespace) -> int:
    models = find_models()
    if args.json:
        print(json.dumps({"models": [as_json(m) for m in models], "partial": [str(p) for p in partial_downloads()]}))
        return 0
    if not models:
        print("no models yet: localinfer pull demo", file=sys.stderr)
    width = max((len(m.name) for m in models), default=0)
    for m in models:
        trouble = f"  ({m.trouble}: localinfer rm {m.name}, then pull again)" if m.trouble else ""
        print(f"{m.name:{width}}  {format_bytes(m.n_bytes):>10}  {m.source:11}  {_day(m.modified)}{trouble}")
    for path in partial_downloads():
        print(f"{path.name}: unfinished download, {format_bytes(path.stat().st_size)}: pull it again to go on")
    return 0


def as_json(m: LocalModel) -> dict[str, Any]:
    return {
        "name": m.name, "path": str(m.path), "bytes": m.n_bytes, "source": m.source, "modified": m.modified,
        "trouble": m.trouble,
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
