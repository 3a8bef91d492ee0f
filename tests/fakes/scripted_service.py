"""An engine service that answers from a script: text at a given rate, slow prompts, thinking, notices, failures."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localinfer.engine.events import (
    DraftStats,
    GenerationEvent,
    LoadProgress,
    MemoryStats,
    Notice,
    PromptProgress,
    StopReason,
    TextDelta,
    TurnDone,
    TurnFailed,
    TurnStats,
)
from localinfer.engine.params import EngineOptions, EngineStatus, SamplingParams
from localinfer.errors import LocalinferError, TooSlow

READY = EngineStatus(
    state="ready", path="/models/tiny.gguf", model="Tiny-135M", arch="llama", quant="Q4_1", backend="cpu",
    device="2 cores", threads=2, ctx=2048, ctx_train=2048, kv="f16", kv_bytes=47_185_920, has_template=True,
    load_s=0.2, pid=4242, peak_bytes=150_000_000,
)  # fmt: skip

KILLED = TurnFailed(1, "the engine process was killed (SIGKILL)", "the model can be loaded again", 6)


@dataclass
class Answer:
    """What one call of `chat` does. `tok_s` 0 streams without waiting."""

    text: str = "The capital of France is **Paris**."
    thinking: str = ""
    tok_s: float = 0.0
    prompt_tokens: int = 34
    cached_tokens: int = 0
    prompt_s: float = 0.0  # the time that reading the prompt takes
    notice: str = ""
    notice_plan: Any = None  # that the notice brings
    fail_after: int = -1  # tokens after which the engine dies
    failure: TurnFailed = KILLED
    reason: StopReason = "eos"
    left_out: int = 0
    hold_at: int = -1  # tokens after which it waits until it is `released`
    released: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class ScriptedService:
    """Answers in turn from `answers`; the last one is repeated. `asked` records what came in."""

    answers: list[Answer] = field(default_factory=lambda: [Answer()])
    ready: EngineStatus = READY
    open_error: LocalinferError | None = None
    load_s: float = 0.0
    planner: Callable[[str, EngineOptions], Any] = lambda path, options: None
    asked: list[tuple[list[tuple[str, str]], SamplingParams]] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)  # what came with each turn beside those
    opened: list[tuple[str, EngineOptions]] = field(default_factory=list)
    n_cancels: int = 0

    def __post_init__(self) -> None:
        self._cancelled = asyncio.Event()
        self._status = EngineStatus()

    async def open(
        self, model_path: Any, options: EngineOptions | None = None, on_progress: Callable[[Any], None] | None = None
    ) -> EngineStatus:
        self.opened.append((str(model_path), options or EngineOptions()))
        for step in (1, 2, 3, 4):
            await asyncio.sleep(self.load_s / 4)
            if on_progress:
                on_progress(LoadProgress(0, step / 4, "mapping weights"))
        wanted = isinstance(self.open_error, TooSlow) and options is not None and not options.least_tok_s
        if self.open_error and not wanted:
            self._status = EngineStatus(state="failed", failure=str(self.open_error))
            raise self.open_error
        self._status = replace(self.ready, path=str(model_path), ctx=(options and options.ctx) or self.ready.ctx)
        return self._status

    async def plan(self, model_path: Any, options: EngineOptions | None = None) -> Any:
        return self.planner(str(model_path), options or EngineOptions())

    async def count_tokens(self, text: str) -> int | None:
        return len(tokens_of(text)) if self._status.state == "ready" else None

    async def chat(
        self, messages: Sequence[Any] | str, params: SamplingParams | None = None, **settings: Any
    ) -> AsyncIterator[GenerationEvent]:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(
            ([(m.role, m.content) for m in messages if not isinstance(m, str)], params or SamplingParams())
        )
        self.settings.append(settings)
        self._cancelled.clear()
        if self._status.state == "failed":
            yield TurnFailed(1, "no model is open", self._status.failure, 6)
            return
        async for event in self._read_prompt(answer):
            yield event
        if answer.notice:
            yield Notice(1, answer.notice, answer.notice_plan)
        limit = params.max_tokens if params and params.max_tokens else None
        async for event in self._write(answer, limit):
            yield event

    def pace(self, seconds: float) -> None:
        """Events come as the script says."""

    async def cancel(self) -> None:
        self.n_cancels += 1
        self._cancelled.set()

    async def status(self) -> EngineStatus:
        return self._status

    async def close(self) -> None:
        self._cancelled.set()
        self._status = EngineStatus()

    async def _read_prompt(self, answer: Answer) -> AsyncIterator[GenerationEvent]:
        for step in range(1, 5):
            await self._wait(answer.prompt_s / 4)
            done = answer.cached_tokens + (answer.prompt_tokens - answer.cached_tokens) * step // 4
            yield PromptProgress(1, done, answer.prompt_tokens, answer.cached_tokens)

    async def _write(self, answer: Answer, limit: int | None) -> AsyncIterator[GenerationEvent]:
        pieces = [("thinking", piece) for piece in tokens_of(answer.thinking)]
        pieces += [("answer", piece) for piece in tokens_of(answer.text)]
        done = ""
        start = asyncio.get_running_loop().time()
        for n, (kind, piece) in enumerate(pieces):
            if n == answer.fail_after:
                self._status = EngineStatus(state="failed", failure=answer.failure.message)
                yield answer.failure
                return
            if n == answer.hold_at:
                await answer.released.wait()
            if limit is not None and n >= limit:
                yield self._done(answer, n, "max_tokens", done)
                return
            if answer.tok_s:
                await self._wait(start + n / answer.tok_s - asyncio.get_running_loop().time())
            elif n % 64 == 63:
                await asyncio.sleep(0)
            if self._cancelled.is_set():
                yield self._done(answer, n, "cancelled", done)
                return
            done += piece if kind == "answer" else ""
            yield TextDelta(1, piece, (n,), "thinking" if kind == "thinking" else "answer")
        if answer.fail_after >= len(pieces):
            yield answer.failure
            return
        yield self._done(answer, len(pieces), answer.reason, done)

    async def _wait(self, seconds: float) -> None:
        if seconds > 0 and not self._cancelled.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._cancelled.wait(), seconds)

    def _done(self, answer: Answer, n: int, reason: StopReason, text: str) -> TurnDone:
        stats = TurnStats(
            backend="cpu", prompt_tokens=answer.prompt_tokens, cached_tokens=answer.cached_tokens, generated_tokens=n,
            ttft_s=0.15, prefill_tok_s=220.0, decode_tok_s=38.2 if n > 1 else 0.0,
            context_used=answer.prompt_tokens + n, context_limit=self._status.ctx or 2048,
            left_out=answer.left_out,
            draft=DraftStats(rounds=4, proposed=12, accepted=9),
            memory=MemoryStats(plan_bytes=160_000_000, peak_bytes=150_000_000),
        )  # fmt: skip
        return TurnDone(1, reason, text, tuple(range(n)), stats)


def tokens_of(text: str) -> list[str]:
    """Pieces of about four characters, as a tokenizer cuts them."""
    return re.findall(r"\s?\w{1,5}|\s?[^\w\s]|\s", text)


def long_markdown(n_tokens: int) -> str:
    """Markdown of about n_tokens pieces: headings, lists, tables, code, prose."""
    section = """## Section {n}: memory and bandwidth

A model of *{n}* billion weights reads **every weight once** per token, so `bandwidth / bytes` bounds the rate. What is
kept between tokens, the KV cache, grows with the context and competes for the same memory.

1. Read the header, then the tensor table.
2. Map the file; touch nothing yet.
   - pages arrive when they are used
   - a second run finds them cached

| type | bytes per block | values |
|:-----|----------------:|-------:|
| Q4_1 | 20 | 32 |
| Q8_0 | 34 | 32 |

```python
def bound(bandwidth: float, n_bytes: int) -> float:
    \"\"\"Tokens per second at best.\"\"\"
    return bandwidth / n_bytes  # section {n}
```

> Measure before you believe.

"""
    parts: list[str] = []
    n = total = 0
    while total < n_tokens:
        n += 1
        parts.append(section.format(n=n))
        total += len(tokens_of(parts[-1]))
    return "".join(parts)
