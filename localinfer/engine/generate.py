"""One answer: prefill, then rounds of (sample, accept, verify drafts) until something ends it.

A round puts 1 + k tokens through the model: the one just drawn and k guesses of the drafter (k is often 0). Row i of
the logits says what follows guess i - 1. The sampler draws position by position, as without drafting; a guess stays
as long as it equals the draw. So text, stop strings, penalties and limits see one token at a time, drafted or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from localinfer.engine.answer_text import AnswerText
from localinfer.engine.conversation import Conversation
from localinfer.engine.drafter import Drafter
from localinfer.engine.events import DraftStats, GenerationEvent, PromptProgress, StopReason, TextDelta
from localinfer.engine.params import MAX_DRAFT, SamplingParams
from localinfer.engine.prefill import ChunkSizer, prefill
from localinfer.engine.sampler import Sampler
from localinfer.errors import BackendError, UsageError
from localinfer.records import dataclass, field

if TYPE_CHECKING:
    import numpy as np


@dataclass
class Timing:
    """Seconds on the monotonic clock; 0 where it has not happened."""

    asked: float = field(default_factory=time.perf_counter)
    prefill_start: float = 0.0
    prefill_end: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0


class Generation:
    """One answer being made. Iterate `run()`; afterwards `reason`, `tokens`, `timing` and `draft` say how it went."""

    def __init__(
        self,
        conversation: Conversation,
        ids: Sequence[int],
        params: SamplingParams,
        answer: AnswerText,
        sizer: ChunkSizer,
        *,
        eog_ids: frozenset[int] = frozenset(),
        drafter: Drafter | None = None,
        turn_id: int = 0,
        cancelled: Callable[[], bool] = lambda: False,
        timing: Timing | None = None,
        branch_at: int = 0,
    ) -> None:
        """branch_at: tokens of the prompt that other conversations are likely to begin with too; 0: none."""
        check_prompt(ids, conversation.n_ctx)
        self.conversation = conversation
        self.ids = list(ids)
        self.params = params
        self.answer = answer
        self.sampler = Sampler(params, ids)
        self.timing = timing or Timing()
        self.tokens: list[int] = []
        self.reason: StopReason | None = None
        self.cached = 0
        self.draft = DraftStats()
        self._sizer = sizer
        self._most = most_guesses(params.draft, conversation.kv.spec.chunk)
        self._ends = frozenset() if params.ignore_eos else eog_ids
        self._drafter = drafter if self._most else None
        self._turn_id = turn_id
        self._branch_at = branch_at
        self._cancelled = cancelled
        self._guesses: list[int] = []
        self._rounds = 0  # since the prompt
        self.plain_s: list[float] = []  # computing in each round without guesses
        self._round_s = 0.0  # computing in this round, the reader's time excluded
        self._stored = 0  # tokens of the cache that are surely part of the timeline

    def run(self) -> Iterator[GenerationEvent]:
        """PromptProgress, then TextDelta. However it ends, the cache holds exactly the timeline's tokens."""
        self.timing.prefill_start = time.perf_counter()
        self.cached = self.conversation.sync(self.ids)
        logits = yield from self._prefill()
        if self.params.max_tokens == 0:
            self.reason = "max_tokens"
        try:
            while logits is not None and self.reason is None:
                before = len(self.tokens)
                yield from self._draw_from(logits)
                self._end_round(len(self.tokens) - before)
                if self.reason is None:
                    logits = self._next_round()
            self.reason = self.reason or "cancelled"
            yield from self.answer.finish()
        finally:
            if logits is not None:
                self.conversation.rollback(self._stored)

    def _prefill(self) -> Generator[PromptProgress, None, np.ndarray | None]:
        logits = yield from prefill(
            self.conversation, self.ids, self._sizer, self._turn_id, self._cancelled, self._marks()
        )
        self._stored = self.conversation.length
        if logits is not None:
            self.timing.prefill_end = time.perf_counter()
        if self._drafter and logits is not None:
            self._drafter.sync(self.ids)
        return logits

    def _marks(self) -> set[int]:
        """Where another prompt may leave this one: a common beginning, before this turn, after its question. The last
        token is put through again, so a recurrent state is wanted from before it."""
        kv = self.conversation.kv
        if not kv.spec.remembers:
            return set()
        question = len(self.ids) - kv.spec.has_state
        branches = (self._branch_at, kv.shared, self.cached, question)
        return {at for at in branches if max(1, self.cached) <= at <= question}

    def _draw_from(self, logits: np.ndarray) -> Iterator[TextDelta]:
        """Draw at each row for as long as the guesses hold; sets `reason` when the answer ends here."""
        for i, row in enumerate(logits):
            if self._cancelled():
                self.reason = "cancelled"
                return
            token = self._draw(row)
            if token in self._ends:
                self.reason = "eos"
                return
            self._accept(token)
            yield from self.answer.push(token)
            self.reason = self._why_stop()
            if self.reason or i == len(self._guesses) or self._guesses[i] != token:
                return
            self._stored += 1

    def _why_stop(self) -> StopReason | None:
        if self.answer.stopped:
            return "stop"
        if self.params.max_tokens == len(self.tokens):
            return "max_tokens"
        return "context_full" if self._stored == self.conversation.n_ctx else None

    def _draw(self, row: np.ndarray) -> int:
        start = time.perf_counter()
        best = row.max()
        if not abs(best) < float("inf"):
            raise BackendError(
                f"the model's output is not a number at token {self._stored}", "is the file damaged? try --backend cpu"
            )
        token = self.sampler.sample(row, self._stored)
        self._round_s += time.perf_counter() - start
        return token

    def _accept(self, token: int) -> None:
        self.timing.last_token = time.perf_counter()
        self.timing.first_token = self.timing.first_token or self.timing.last_token
        self.sampler.accept(token)
        self.tokens.append(token)
        if self._drafter:
            self._drafter.extend(token)

    def _next_round(self) -> np.ndarray:
        """Forget refused guesses, put the last token and new guesses through."""
        start = time.perf_counter()
        self.conversation.rollback(self._stored)
        room = self.conversation.n_ctx - self._stored - 1
        if self.params.max_tokens is not None:
            room = min(room, self.params.max_tokens - len(self.tokens) - 1)
        self._guesses = self._drafter.propose(min(room, self._most)) if self._drafter and room > 0 else []
        logits = self.conversation.extend([self.tokens[-1], *self._guesses], rows=1 + len(self._guesses))
        self._stored += 1
        self._round_s = time.perf_counter() - start
        self._rounds += 1
        return logits

    def _end_round(self, n_new: int) -> None:
        """Count the round, and tell the drafter what it cost and kept, unless something ended it early."""
        if not self._rounds:
            return
        if not self._guesses:
            self.plain_s.append(self._round_s)
        if self._drafter is None:
            return
        proposed, accepted = len(self._guesses), max(0, n_new - 1)
        saved_s = 0.0 if self.reason else self._drafter.observe(proposed, accepted, self._round_s)
        if proposed:
            d = self.draft
            self.draft = DraftStats(d.rounds + 1, d.proposed + proposed, d.accepted + accepted, d.saved_s + saved_s)


def most_guesses(draft: str | int, chunk: int) -> int:
    """Guesses a round may check: as asked, and never more rows than go through at a time."""
    asked = {"auto": MAX_DRAFT, "off": 0}.get(str(draft), draft)
    return min(int(asked), chunk - 1)


def check_prompt(ids: Sequence[int], n_ctx: int) -> None:
    if not ids:
        raise UsageError("prompt: expected a text, found none", "this model adds no start token of its own")
    if len(ids) > n_ctx:
        raise UsageError(
            f"prompt: {len(ids)} tokens do not fit in a context of {n_ctx}",
            f"--ctx {len(ids) + 512}, a shorter text, or in a chat --context-full drop: the oldest turns are left out",
        )
