"""`localinfer run MODEL -p TEXT`: one answer, streamed to stdout."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from localinfer.cli.main import print_error
from localinfer.cli.options import (
    add_context_full,
    add_engine_options,
    add_model,
    add_sampling_options,
    add_think,
    engine_options,
    sampling_params,
)
from localinfer.cli.progress import StatusLine
from localinfer.cli.resolve import resolve
from localinfer.cli.terminal_text import printable
from localinfer.engine.events import LoadProgress, Notice, PromptProgress, TextDelta, TurnDone, TurnFailed
from localinfer.engine.service import ChatMessage, EngineBug, EngineService, EngineStatus
from localinfer.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, UsageError
from localinfer.units import format_bytes

if TYPE_CHECKING:
    from localinfer.backends.base import PagingState


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("run", help="one answer, streamed to stdout", description=__doc__)
    add_model(parser)
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="what to answer (default, and -: what is piped in)")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    add_think(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end instead of streaming")
    parser.add_argument("--stats", action="store_true", help="print speed and memory to stderr, also off a terminal")
    add_engine_options(parser)
    add_context_full(parser)
    add_sampling_options(parser)


def run(args: argparse.Namespace) -> int:
    prompt = read_prompt(args.prompt)
    if args.raw and args.system:
        raise UsageError("--system: there is no system prompt with --raw", "put it into the text")
    params, options = sampling_params(args), engine_options(args)
    return asyncio.run(_Run(args, prompt, options, params).main())


def read_prompt(text: str | None) -> str:
    """The text itself; for "-" all of stdin; for None too, which must then bring something. UsageError."""
    if text is not None and text != "-":
        return text
    piped = b"" if text is None and sys.stdin.isatty() else sys.stdin.buffer.read()
    if text is None and not piped:
        raise UsageError("expected -p TEXT or text on stdin, found neither")
    return piped.decode("utf-8", "surrogateescape")


class _Run:
    def __init__(self, args: argparse.Namespace, prompt: str, options: Any, params: Any) -> None:
        self._args = args
        self._prompt = prompt
        self._options = options
        self._params = params
        self._service = EngineService()
        self._line = StatusLine(delay_s=0.3)
        self._answering = False
        self._interrupted = False
        self._task: asyncio.Task[int] | None = None

    async def main(self) -> int:
        self._task = asyncio.current_task()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._on_interrupt)
        try:
            return await self._answer()
        except asyncio.CancelledError:
            return EXIT_INTERRUPTED
        except EngineBug as bug:
            print(bug, file=sys.stderr)
            return EXIT_BUG
        finally:
            self._line.clear()
            await self._service.close()

    def _on_interrupt(self) -> None:
        """The first Ctrl-C ends the answer and keeps what is written; before that, and the second time, all ends."""
        if self._answering and not self._interrupted:
            self._interrupted = True
            asyncio.ensure_future(self._service.cancel())  # noqa: RUF006 (only puts a message on the pipe)
        elif self._task:
            self._task.cancel()

    async def _answer(self) -> int:
        status = await self._service.open(resolve(self._args.model), self._options, self._show_loading)
        for notice in status.notices:
            note(notice)
        printer = _Printer(self._args.json)
        last: TurnDone | TurnFailed | None = None
        self._answering = True
        settings = {} if self._args.think is None else {"thinking": self._args.think}
        try:
            async for event in self._service.chat(self._messages(), self._params, **settings):
                if isinstance(event, TurnDone | TurnFailed):
                    last = event
                else:
                    self._show(event, printer)
        finally:
            self._line.clear()
            printer.end()
        assert last is not None
        return self._conclude(last, status)

    def _messages(self) -> list[ChatMessage] | str:
        if self._args.raw:
            return self._prompt
        system = [ChatMessage("system", self._args.system)] if self._args.system else []
        return [*system, ChatMessage("user", self._prompt)]

    def _show_loading(self, event: LoadProgress) -> None:
        self._line.show(f"loading {100 * event.fraction:3.0f} %  {event.text}")

    def _show(self, event: Any, printer: _Printer) -> None:
        if isinstance(event, TextDelta):
            self._line.clear()
            printer.write(event)
        elif isinstance(event, PromptProgress) and event.done < event.total:
            self._line.show(f"reading the prompt  {event.done}/{event.total} tokens")
        elif isinstance(event, Notice):
            self._line.clear()
            note(event.text)

    def _conclude(self, last: TurnDone | TurnFailed, status: EngineStatus) -> int:
        if isinstance(last, TurnFailed):
            print_error(last.message, last.hint)
            if last.details and last.exit_code == 1:
                print(last.details, file=sys.stderr)
            return EXIT_INTERRUPTED if self._interrupted else last.exit_code
        if self._args.json:
            print(json.dumps(as_json(last)))
        if last.reason == "context_full":
            note(f"context full ({last.stats.context_limit}/{last.stats.context_limit}): --ctx makes it larger")
        if self._args.stats or (sys.stderr.isatty() and not self._args.json):
            print(summary(last, status), file=sys.stderr)
        return EXIT_INTERRUPTED if last.reason == "cancelled" else EXIT_OK


class _Printer:
    """Answer text to stdout as it comes; thinking, dimmed, to a terminal's stderr."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._last = ""
        self._safe = sys.stdout.isatty()
        self._show_thinking = sys.stderr.isatty() and not quiet
        self._thinking = False

    def write(self, event: TextDelta) -> None:
        if event.kind == "thinking":
            if self._show_thinking:
                sys.stderr.write(f"\x1b[2m{printable(event.text)}\x1b[0m")
                sys.stderr.flush()
                self._thinking = True
        elif not self._quiet:
            if self._thinking:
                sys.stderr.write("\n\n")
                self._thinking = False
            sys.stdout.write(printable(event.text) if self._safe else event.text)
            sys.stdout.flush()
            self._last = event.text[-1]

    def end(self) -> None:
        if self._last and self._last != "\n":
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._last = ""


def note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def summary(done: TurnDone, status: EngineStatus) -> str:
    s = done.stats
    parts = [f"{s.generated_tokens} tokens"]
    if s.decode_tok_s:
        parts.append(f"{s.decode_tok_s:.1f} tok/s")
    if s.generated_tokens:
        parts.append(f"first token {s.ttft_s:.2f} s after {s.prompt_tokens - s.cached_tokens} prompt tokens")
    if s.draft.proposed:
        parts.append(f"drafting {s.draft_gain:.2f} x, {s.draft.accepted} of {s.draft.proposed} guesses right")
    if s.paging:
        parts.append(f"{format_bytes(s.paging.read_bytes)} paged in")
        if s.paging.lookups:
            parts.append(f"experts in memory {s.paging.hits / s.paging.lookups:.0%}")
    parts.append(f"context {s.context_used}/{s.context_limit}")
    return f"[{', '.join(parts)}; {s.backend}, seed {s.seed}]"


def as_json(done: TurnDone) -> dict[str, Any]:
    s = done.stats
    return {
        "text": done.text,
        "tokens": list(done.tokens),
        "prompt_tokens": s.prompt_tokens,
        "cached_tokens": s.cached_tokens,
        "generated_tokens": s.generated_tokens,
        "stop_reason": done.reason,
        "ttft_s": s.ttft_s,
        "prefill_tok_s": s.prefill_tok_s,
        "decode_tok_s": s.decode_tok_s,
        "draft": {**asdict(s.draft), "gain": s.draft_gain},
        "memory": {"plan_bytes": s.memory.plan_bytes, "peak_bytes": s.memory.peak_bytes},
        "backend": s.backend,
        "seed": s.seed,
        "paging": as_paging(s.paging),
        "context": {"used": s.context_used, "limit": s.context_limit},
    }


def as_paging(p: PagingState | None) -> dict[str, Any] | None:
    """What was read from storage for this answer; null where all weights are in memory."""
    if p is None:
        return None
    return {
        "read_bytes": p.read_bytes, "read_s": p.read_s, "wait_s": p.wait_s,
        "expert_lookups": p.lookups, "expert_hits": p.hits,
    }  # fmt: skip
