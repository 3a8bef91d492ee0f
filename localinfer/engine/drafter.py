"""What guesses the next tokens. A guess costs time when it is wrong, never the text: every one is verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Drafter(Protocol):
    """Follows one conversation's tokens, sampled and prompt alike."""

    def sync(self, tokens: Sequence[int]) -> None:
        """The timeline is now these tokens (a prompt was prefilled, or an answer cut)."""

    def extend(self, token: int) -> None:
        """One more token of the timeline."""

    def propose(self, limit: int) -> list[int]:
        """Guesses for the tokens to come, at most `limit`; often none."""

    def observe(self, proposed: int, accepted: int, seconds: float) -> None:
        """A round with so many guesses took so long, sampling included, and kept so many of them."""
