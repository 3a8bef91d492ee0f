"""`localinfer`: parse, call the command's `run(args) -> exit code`, print errors as one line each.

Each command is a module with `add_parser(subparsers)` and `run(args)`. Only the module of the command that was typed is
imported, so that no command pays for another's imports.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from localinfer import __version__
from localinfer.errors import EXIT_INTERRUPTED, EXIT_OK, LocalinferError, UsageError

COMMANDS = (
    "chat", "run", "fit", "bench", "eval", "inspect", "tokens", "pull", "models", "rm", "sessions", "doctor",
)  # fmt: skip
ENGINE_COMMANDS = ("run", "chat")  # those that talk to an engine process
_HOMES = {"rm": "models"}  # commands that live in another command's module
DESCRIPTION = "Chat with a quantized GGUF model on your own machine, and know beforehand that it will fit."
EPILOG = "Without a command: the terminal app. `localinfer COMMAND --help` explains a command."


class Parser(argparse.ArgumentParser):
    """Errors are UsageErrors: one line, exit 2."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help")


def build_parser(only: str | None = None) -> Parser:
    """The whole parser, or one that knows a single command."""
    parser = Parser(prog="localinfer", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"localinfer {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in COMMANDS if only is None else (only,):
        module = _module(name)
        add = getattr(module, f"add_{name}_parser", None) or module.add_parser
        add(subparsers)
    return parser


def _module(command: str) -> Any:
    return import_module(f"localinfer.cli.{_HOMES.get(command, command)}")


def _typed_command(argv: Sequence[str]) -> str | None:
    return argv[0] if argv and argv[0] in COMMANDS else None


def main(argv: Sequence[str] | None = None) -> int:
    if argv is None:
        argv = sys.argv[1:]
        _start_engine(argv)
    argv = list(argv)
    gc.set_threshold(50_000, 20, 20)  # imports make many objects and little garbage: 20 ms of a `fit` went to looking
    _make_output_robust()
    try:
        code = _run(argv)
        sys.stdout.flush()
        gc.freeze()  # else the interpreter's end goes through every object once more
        return code
    except LocalinferError as error:
        print_error(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough: `localinfer run ... | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _start_engine(argv: Sequence[str]) -> None:
    """The engine process and this one load their modules at the same time."""
    if len(argv) > 1 and argv[0] in ENGINE_COMMANDS and not {"-h", "--help"} & set(argv):
        from localinfer.engine.spawn import start_ahead

        with suppress(LocalinferError):  # said when it is needed
            start_ahead()


def _run(argv: list[str]) -> int:
    if argv == ["--version"]:  # no need to import every command
        print(f"localinfer {__version__}")
        return EXIT_OK
    args, unknown = build_parser(_typed_command(argv)).parse_known_args(argv)
    if unknown:  # said here, since argparse would name the program's help instead of the command's
        command = f"localinfer {args.command}" if args.command else "localinfer"
        raise UsageError(f"unrecognized arguments: {' '.join(unknown)}", f"{command} --help")
    if args.command is None:
        args = build_parser("chat").parse_args(["chat"])
    module = _module(args.command)
    run = getattr(module, f"run_{args.command}", None) or module.run
    return run(args)


def print_error(message: str, hint: str = "") -> None:
    print("error: " + " ".join(message.split("\n")), file=sys.stderr)
    if hint:
        print("hint: " + " ".join(hint.split("\n")), file=sys.stderr)


def _make_output_robust() -> None:
    """A terminal that cannot show a character gets a substitute, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
