"""All that a reader of a turn can see. Frozen plain values: they cross a pipe, and know nothing of any screen.

Every stream of a turn ends in exactly one TurnDone or TurnFailed.
"""

from __future__ import annotations

from typing import Literal

from localinfer.backends.base import PagingState
from localinfer.records import dataclass, field

StopReason = Literal["eos", "stop", "max_tokens", "context_full", "cancelled"]
TextKind = Literal["answer", "thinking"]


@dataclass(frozen=True)
class LoadProgress:
    turn_id: int
    fraction: float  # 0..1
    text: str


@dataclass(frozen=True)
class PromptProgress:
    turn_id: int
    done: int  # prompt tokens in the cache, cached ones included
    total: int
    cached: int


@dataclass(frozen=True)
class TextDelta:
    """A piece of text, whole characters only; `tokens` are the ids that came with it."""

    turn_id: int
    text: str
    tokens: tuple[int, ...] = ()
    kind: TextKind = "answer"


@dataclass(frozen=True)
class Notice:
    """Something the user should know, in one line; the turn goes on. `plan`: what holds from now on, where that is
    another one than before (the memory limit was lowered)."""

    turn_id: int
    text: str
    plan: object | None = None


@dataclass(frozen=True)
class DraftStats:
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    saved_s: float = 0.0  # measured time against one token a step; negative where drafting cost time


@dataclass(frozen=True)
class MemoryStats:
    plan_bytes: int = 0  # what the plan said; 0 where there was none
    peak_bytes: int = 0  # what was measured


@dataclass(frozen=True)
class TurnStats:
    """Rates are 0 where nothing was timed: decode_tok_s never comes from a single token."""

    backend: str
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    ttft_s: float
    prefill_tok_s: float
    decode_tok_s: float
    context_used: int
    context_limit: int
    left_out: int = 0  # messages at the start of the conversation that no longer fit into the context
    seed: int = 0  # what the sampler drew with: the same seed gives the same text
    draft: DraftStats = field(default_factory=DraftStats)
    memory: MemoryStats = field(default_factory=MemoryStats)
    paging: PagingState | None = None  # of this turn; None where all weights are in memory

    @property
    def draft_gain(self) -> float:
        """Speed of decoding against plain steps, by the time that drafting saved; 1.0 where it did not run."""
        if not self.draft.rounds or not self.decode_tok_s:
            return 1.0
        decode_s = (self.generated_tokens - 1) / self.decode_tok_s
        return (decode_s + self.draft.saved_s) / decode_s


@dataclass(frozen=True)
class TurnDone:
    turn_id: int
    reason: StopReason
    text: str  # the whole answer, thinking excluded
    tokens: tuple[int, ...]  # all generated ids, a final end-of-turn id excluded
    stats: TurnStats


@dataclass(frozen=True)
class TurnFailed:
    turn_id: int
    message: str
    hint: str
    exit_code: int  # of the error tree; 1 for a bug
    details: str = ""  # traceback text of a bug, for the log


GenerationEvent = LoadProgress | PromptProgress | TextDelta | Notice | TurnDone | TurnFailed
