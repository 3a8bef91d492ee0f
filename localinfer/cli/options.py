"""Options that several commands share, and what they mean for the engine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from localinfer.engine.params import BACKENDS, CONTEXT_FULL, EngineOptions, SamplingParams
from localinfer.errors import UsageError
from localinfer.units import parse_bytes, parse_tokens

T = TypeVar("T")


def _as(convert: Callable[[str], T], expected: str, name: str) -> Callable[[str], T]:
    """An argparse type whose error says what was expected and what was found."""

    def parse(text: str) -> T:
        try:
            return convert(text)
        except ValueError:
            raise UsageError(f"{name}: expected {expected}, found {text!r}") from None

    return parse


def integer(name: str) -> Callable[[str], int]:
    return _as(int, "a whole number", name)


def number(name: str) -> Callable[[str], float]:
    return _as(float, "a number", name)


def tokens(name: str) -> Callable[[str], int]:
    return lambda text: parse_tokens(text, name)


def add_model(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?" if optional else None,
        help="path of a .gguf file or of a folder in mlx-lm's format, a name from `localinfer models`, demo, or "
        "hf:OWNER/REPO[:QUANT]",
    )


def add_engine_options(parser: argparse.ArgumentParser, several_threads: bool = False) -> None:
    """several_threads: --threads takes a list, and is left as text."""
    group = parser.add_argument_group("loading")
    group.add_argument("--backend", choices=BACKENDS, default="auto", help="what computes (default: auto)")
    group.add_argument(
        "--threads",
        type=str if several_threads else integer("--threads"),
        metavar="N,.." if several_threads else "N",
        help="CPU threads (default: all cores allowed)",
    )
    group.add_argument(
        "--ctx", metavar="N", help="context in tokens: 8192, 32k, max (default: 4096, or the model's own)"
    )
    group.add_argument(
        "--kv", default="f16", metavar="TYPE", help="KV cache type, or KTYPE/VTYPE: f16, q8_0, q4_0, f32"
    )
    group.add_argument("--weight-budget", metavar="SIZE", help="keep at most this much of the weights in memory")
    group.add_argument("--chat-template", default="", metavar="NAME", help="chat format for a model that brings none")
    group.add_argument("--force", action="store_true", help="load even if the plan says that it does not fit")


def add_context_full(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--context-full",
        choices=CONTEXT_FULL,
        help="a chat longer than the context: stop (default), or drop its oldest turns, keeping the system prompt and "
        "the last question",
    )


def add_think(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--think", action=argparse.BooleanOptionalAction, help="ask the template for thinking, or for none"
    )


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    default = SamplingParams()
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--seed", type=integer("--seed"), metavar="N", help="same seed, same text (default: a fresh one)"
    )
    for flag, name, what in _NUMBERS:
        kind = integer(flag) if isinstance(getattr(default, name), int) else number(flag)
        shown = getattr(default, name)
        group.add_argument(flag, dest=name, type=kind, metavar="X", help=f"{what} (default: {shown})")
    group.add_argument(
        "-n", "--max-tokens", type=integer("--max-tokens"), metavar="N", help="longest answer, in tokens"
    )
    group.add_argument("--stop", action="append", metavar="TEXT", help="end before this text (repeatable)")
    group.add_argument("--draft", metavar="K", help="context-lookup drafting: auto, off, or most tokens a round")


_NUMBERS = (
    ("--temp", "temperature", "randomness; 0: always the most likely token"),
    ("--top-k", "top_k", "choose among the K most likely; 0: all"),
    ("--top-p", "top_p", "choose among the most likely that have this probability together"),
    ("--min-p", "min_p", "drop what is less likely than this share of the best"),
    ("--repeat-penalty", "repeat_penalty", "above 1: the last 64 tokens become less likely"),
    ("--presence-penalty", "presence_penalty", "subtracted once from tokens the answer has"),
    ("--frequency-penalty", "frequency_penalty", "subtracted for each time the answer has them"),
)


def engine_options(args: argparse.Namespace, ctx_train: int | None = None) -> EngineOptions:
    return EngineOptions(
        ctx=parse_tokens(args.ctx, "--ctx", ctx_train) if args.ctx else None,
        kv=args.kv,
        backend=args.backend,
        threads=args.threads,
        weight_budget=parse_bytes(args.weight_budget, "--weight-budget") if args.weight_budget else None,
        template=args.chat_template,
        force=args.force,
        context_full=getattr(args, "context_full", None) or "stop",
    )


def given_sampling(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of SamplingParams that the command line sets. UsageError where one is out of range."""
    names = (*(name for _, name, _ in _NUMBERS), "seed", "max_tokens", "stop", "draft")
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    SamplingParams(**given)
    return given


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    return SamplingParams(**given_sampling(args))
