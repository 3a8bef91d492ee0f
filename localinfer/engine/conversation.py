"""Conversation: the running timeline of tokens and the KV cache that holds them. They never disagree.

`tokens` are exactly those whose keys and values are stored. `sync` moves to another prompt with as little work as
possible: what any timeline so far has in common with it stays, as far as the cache still holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from localinfer.backends.base import KVCache, LoadedModel


class Conversation:
    def __init__(self, model: LoadedModel, kv: KVCache) -> None:
        self._model = model
        self.kv = kv
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def n_ctx(self) -> int:
        return self.kv.spec.n_ctx

    def sync(self, ids: Sequence[int]) -> int:
        """Move to the timeline of `ids`; returns how many of them are stored already, at most len(ids) - 1.

        The last token of a prompt always goes through the model again: its logits are not stored.
        """
        stored = self.kv.switch(self.tokens, ids[:-1])
        self.tokens[:] = ids[:stored]
        return stored

    def mark(self) -> None:
        """One will want to come back to here."""
        self.kv.mark(self.tokens)

    def extend(self, ids: Sequence[int], rows: int) -> np.ndarray:
        """Put ids through the model; float32 (rows, V) logits of the last rows."""
        try:
            logits = self._model.forward(ids, self.kv, rows)
        except BaseException:
            del self.tokens[self.kv.length :]  # a recurrent state that is lost takes all with it
            raise
        self.tokens.extend(ids)
        return logits

    def rollback(self, length: int) -> None:
        """Back to `length` tokens. Where the cache cannot go back so far, what is missing is computed again."""
        lost = self.tokens[:length]
        self._forget_after(length)
        for start in range(self.length, len(lost), self.kv.spec.chunk):
            self.extend(lost[start : start + self.kv.spec.chunk], rows=0)

    def clear(self) -> None:
        """Forget this timeline and all earlier ones."""
        self.kv.clear()
        self.tokens.clear()

    def _forget_after(self, length: int) -> None:
        if length < self.length:
            del self.tokens[self.kv.truncate(length) :]
