"""`localinfer pull REF`: download a model, once, checked. Goes on where an earlier try was cut."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from localinfer.cli.progress import byte_progress
from localinfer.errors import UsageError


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("pull", help="download a model", description=__doc__)
    parser.add_argument(
        "reference",
        metavar="REF",
        help="demo, hf:OWNER/REPO[:QUANT] or hf:OWNER/REPO/FILE.gguf; also a folder in mlx-lm's format",
    )


def run(args: argparse.Namespace) -> int:
    from localinfer.cli.resolve import resolve

    if args.reference != "demo" and not args.reference.startswith("hf:"):
        raise UsageError(f"expected demo or hf:OWNER/REPO[:QUANT], found {args.reference!r}")
    print(resolve(args.reference))
    return 0


def pull_hub(text: str) -> Path:
    """Resolve and download a hub reference; the path of its first file, or of its folder, in the hub's cache."""
    from localinfer.hub import choose, download, list_models, parse_reference

    reference = parse_reference(text)
    model = choose(list_models(reference.repo), reference)
    with byte_progress(model.reference) as progress:
        return download(model, progress)
