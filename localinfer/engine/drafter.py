"""What guesses the next tokens. A guess costs time when it is wrong, never the text: every one is verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from localinfer.engine.draft_gate import DraftGate, GuessKind, kind_of
from localinfer.engine.ngram_index import NgramIndex


class Drafter(Protocol):
    """Follows one conversation's tokens, prompt and answers alike."""

    def sync(self, tokens: Sequence[int]) -> None:
        """The timeline is now these tokens (a prompt was prefilled, or an answer cut)."""

    def extend(self, token: int) -> None:
        """One more token of the timeline."""

    def propose(self, limit: int) -> list[int]:
        """Guesses for the tokens to come, at most `limit`; often none."""

    def observe(self, proposed: int, accepted: int, seconds: float) -> float:
        """A round with so many guesses took so long, and kept so many. Returns the seconds it saved (or cost: < 0)."""


class NgramDrafter:
    """Looks up what followed the last tokens when they came before. Kept with the conversation; costs no model."""

    def __init__(self) -> None:
        self.index = NgramIndex()
        self.gate = DraftGate()
        self._kinds: list[GuessKind] = []  # of the last proposal's guesses

    def sync(self, tokens: Sequence[int]) -> None:
        self.index.sync(tokens)
        self.gate.begin_answer()

    def extend(self, token: int) -> None:
        self.index.extend(token)

    def propose(self, limit: int) -> list[int]:
        match = self.index.longest_match() if limit > 0 and self.gate.step_s else None
        if match is None:
            return []
        guesses = self.index.continuation(match, min(limit, self.gate.longest))
        self._kinds = [
            kind_of(match.length + i, support) for i, support in enumerate(self.index.support(match, guesses))
        ]
        return guesses[: self.gate.length(self._kinds)]

    def observe(self, proposed: int, accepted: int, seconds: float) -> float:
        self.gate.observe(self._kinds[:proposed], accepted, seconds)
        return (1 + accepted) * self.gate.step_s - seconds if proposed else 0.0
