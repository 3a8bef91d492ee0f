"""Conversation: one timeline of tokens and the KV cache that holds them. They never disagree.

`tokens` are exactly those whose keys and values are stored. `sync` moves the timeline to a new prompt with as little
work as possible: what the two have in common stays, the rest is forgotten.
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
        """Keep what `ids` and the timeline share, forget the rest; returns the tokens kept, at most len(ids) - 1.

        The last token of a prompt always goes through the model again: its logits are not stored.
        """
        self._forget_after(min(common_prefix(self.tokens, ids), len(ids) - 1))
        return self.length

    def extend(self, ids: Sequence[int], rows: int) -> np.ndarray:
        """Put ids through the model; float32 (rows, V) logits of the last rows."""
        logits = self._model.forward(ids, self.kv, rows)
        self.tokens.extend(ids)
        return logits

    def rollback(self, length: int) -> None:
        """Back to `length` tokens. Where the cache cannot go back so far, what is missing is computed again."""
        lost = self.tokens[:length]
        self._forget_after(length)
        for start in range(self.length, length, self.kv.spec.chunk):
            self.extend(lost[start : start + self.kv.spec.chunk], rows=0)

    def clear(self) -> None:
        self._forget_after(0)

    def _forget_after(self, length: int) -> None:
        if length < self.length:
            del self.tokens[self.kv.truncate(length) :]


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest prefix that both share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
