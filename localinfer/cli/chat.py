"""`localinfer chat [MODEL]`: the terminal app."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from localinfer.cli.options import add_context_full, add_engine_options, add_model, add_sampling_options, add_think
from localinfer.errors import UsageError


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("chat", help="open the terminal app on a model", description=__doc__)
    add_model(parser, optional=True)
    add_think(parser)
    add_engine_options(parser)
    add_context_full(parser)
    add_sampling_options(parser)


def run(args: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the terminal app needs a terminal on stdin and stdout", "localinfer run MODEL -p TEXT")
    # Textual reads it when imported: how long a lone Esc may still be the start of another key. 100 ms by default,
    # half of what stopping an answer may take; local terminals send a key's bytes together.
    os.environ.setdefault("ESCDELAY", "25")
    from localinfer.cli.options import engine_options, given_sampling
    from localinfer.cli.resolve import resolve
    from localinfer.tui.app import run_app

    path = resolve(args.model) if args.model else None
    thinking = {None: "", True: "on", False: "off"}[args.think]
    return run_app(path, engine_options(args), given_sampling(args), args.context_full, thinking)
