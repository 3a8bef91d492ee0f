"""A chat longer than the context: its oldest turns are left out; the system prompt and the last question stay.

What is left out stays out: dropping one turn more with each question would change the prompt's beginning every time,
and all of it would go through the model again. So when more has to go, half of the context is freed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from localinfer.engine.chat_prompt import Prompt

ANSWER_SHARE = 4  # a quarter of the context is kept for the answer, or max_tokens if that is less


class OldestTurns:
    """Remembers what was left out of the conversation so far. A turn is a user's message and what follows it."""

    def __init__(self, n_ctx: int) -> None:
        self._n_ctx = n_ctx
        self._dropped: list[tuple[str, str]] = []  # (role, text) of the messages left out
        self.left_out = 0  # messages that the prompt made last goes without, system messages not counted

    def fit(
        self, messages: Sequence[Any], make: Callable[[Sequence[Any]], Prompt], max_tokens: int | None
    ) -> tuple[Prompt, str]:
        """The prompt of what can stay, and what is to be told: '' where nothing more was left out than before."""
        head, turns = _split(messages)
        most = self._n_ctx - min(self._n_ctx // ANSWER_SHARE, self._n_ctx if max_tokens is None else max_tokens)

        def without(n: int) -> Prompt:
            return make([*head, *(message for turn in turns[n:] for message in turn)])

        before = self._dropped_turns(turns)
        prompt = without(before)
        self.left_out = sum(map(len, turns[:before]))
        if len(prompt.ids) <= most or before >= len(turns) - 1:
            return prompt, ""
        n = _first(before + 1, len(turns) - 1, lambda n: len(without(n).ids) <= self._n_ctx // 2)
        shorter, gone = without(n), [message for turn in turns[:n] for message in turn]
        self._dropped = [(m.role, m.content) for m in gone]
        self.left_out = len(gone)
        new = n - before
        told = (
            f"context full: the oldest {new} turn{'s' * (new > 1)} of this conversation "
            f"({len(prompt.ids) - len(shorter.ids)} tokens) {'are' if new > 1 else 'is'} left out from now on; "
            f"{len(shorter.ids)} tokens stay, the system prompt and the last question among them"
        )
        return shorter, told

    def _dropped_turns(self, turns: Sequence[Sequence[Any]]) -> int:
        """Turns of this conversation that were left out last time; 0 in another conversation."""
        n = 0
        for n, turn in enumerate(turns[:-1]):
            texts = [(m.role, m.content) for m in turn]
            start = sum(map(len, turns[:n]))
            if self._dropped[start : start + len(texts)] != texts:
                break
        else:
            n = max(0, len(turns) - 1)
        whole = sum(map(len, turns[:n])) == len(self._dropped)
        return n if whole else 0


def _split(messages: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
    """System messages at the start, and turns, each from a user's message to before the next."""
    n = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    turns: list[list[Any]] = []
    for message in messages[n:]:
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return list(messages[:n]), turns


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The lowest number of low..high for which it holds, if it holds from some on; else high."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
