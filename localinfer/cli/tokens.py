"""`localinfer tokens MODEL -p TEXT`: token ids as the engine sees them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from localinfer.cli.options import add_model
from localinfer.cli.resolve import resolve
from localinfer.cli.run import read_prompt
from localinfer.cli.terminal_text import printable


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("tokens", help="token ids as the engine sees them", description=__doc__)
    add_model(parser)
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="the text (default, and -: what is piped in)")
    parser.add_argument("--no-special", action="store_true", help="without the start token that the model asks for")
    parser.add_argument("--plain", action="store_true", help="special tokens in the text are read as letters")
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    from localinfer.backends.cpu.merge import open_merge_table
    from localinfer.formats.model_file import open_model_file
    from localinfer.models.tokenizer import open_tokenizer

    with open_model_file(resolve(args.model)) as file:
        tokenizer = open_tokenizer(file, open_merge_table)
        ids = tokenizer.encode(read_prompt(args.prompt), not args.no_special, not args.plain)
        pieces = [tokenizer.piece(i) for i in ids]
    if args.json:
        print(json.dumps({"ids": ids, "pieces": pieces}))
        return 0
    width = max((len(str(i)) for i in ids), default=0)
    for token, piece in zip(ids, pieces, strict=True):
        print(f"{token:{width}}  {printable(repr(piece))}")
    return 0
