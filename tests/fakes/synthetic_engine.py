"""An engine for the worker process that streams Markdown at a given rate, for measuring the app. No model, no arrays.

Its path is a JSON object of Script's fields. With `threads` 0 a token is waited for; otherwise it is computed: so many
threads of hashing that it takes 1 / tok_s where nobody disturbs it, which shows what the app takes away from decoding.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from localinfer.engine.events import GenerationEvent, PromptProgress, TextDelta, TurnDone, TurnStats
from localinfer.engine.params import EngineStatus
from tests.fakes.scripted_service import long_markdown, tokens_of

OPENER = "tests.fakes.synthetic_engine:open_engine"
BLOCK = bytes(1 << 18)  # hashing it takes well under a millisecond, without the interpreter's lock


@dataclass(frozen=True)
class Script:
    n_tokens: int = 8000
    tok_s: float = 80.0
    threads: int = 0
    blocks: int = 0  # of hashing a token and thread; 0: as many as take 1 / tok_s, measured when opened


class SyntheticEngine:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._pool = ThreadPoolExecutor(max(script.threads, 1))
        self.blocks = script.blocks or (blocks_for(1 / script.tok_s) if script.threads else 0)

    def status(self) -> EngineStatus:
        return EngineStatus(state="ready", model="Synthetic", quant="Q8_0", ctx=16384, has_template=True)

    def save(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        return False  # there is no KV cache

    def count_tokens(self, text: str) -> int:
        return len(tokens_of(text))

    def chat(
        self, messages: Any, params: Any, turn_id: int, cancelled: Callable[[], bool], **settings: Any
    ) -> Iterator[GenerationEvent]:
        pieces = tokens_of(long_markdown(self._script.n_tokens))[: self._script.n_tokens]
        yield PromptProgress(turn_id, 20, 20, 0)
        started = time.perf_counter()
        for n, piece in enumerate(pieces, 1):
            if cancelled():
                break
            self._step(started + n / self._script.tok_s)
            yield TextDelta(turn_id, piece, (n,))
        rate = n / (time.perf_counter() - started)
        stats = TurnStats("synthetic", 20, 0, n, 0.1, 100.0, rate, 20 + n, 16384)
        yield TurnDone(turn_id, "eos", "".join(pieces[:n]), tuple(range(n)), stats)

    def _step(self, due: float) -> None:
        """One token: computed, or waited for until it is due."""
        if self._script.threads:
            list(self._pool.map(hash_blocks, [self.blocks] * self._script.threads))
        else:
            time.sleep(max(0.0, due - time.perf_counter()))


def hash_blocks(n: int) -> None:
    digest = hashlib.sha256()
    for _ in range(n):
        digest.update(BLOCK)


def blocks_for(seconds: float) -> int:
    """How many blocks one thread hashes in that time."""
    started = time.perf_counter()
    hash_blocks(400)
    return max(1, round(400 * seconds / (time.perf_counter() - started)))


def open_engine(path: str | os.PathLike[str], options: Any, on_progress: Callable[[float, str], None]) -> Any:
    on_progress(1.0, "synthetic")
    return SyntheticEngine(Script(**json.loads(os.fspath(path))))


def run_app(script: str, engine: str = OPENER) -> int:
    """The app on this engine: `python -c "from tests.fakes.synthetic_engine import run_app; run_app('{...}')"`."""
    from localinfer.engine.service import EngineService
    from localinfer.tui.app import LocalinferApp, keep_pauses_short

    keep_pauses_short()
    return LocalinferApp(EngineService(engine), script).run() or 0
