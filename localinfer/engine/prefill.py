"""A prompt goes through the model in chunks that are short in time, so that a cancel is answered quickly. (Where
weights are paged, in chunks that are as large as can be: each of them reads all that is not in memory.)

The chunk grows while it stays under CHUNK_TARGET_S at the speed just measured. On a backend whose results do not
depend on how many tokens go through at a time (cpu) the logits are the same for any chunk size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from typing import TYPE_CHECKING

from localinfer.engine.conversation import Conversation
from localinfer.engine.events import PromptProgress

if TYPE_CHECKING:
    import numpy as np

CHUNK_TARGET_S = 0.12  # a cancel must be answered within 0.2 s
CHUNK_SIZES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # few sizes: a backend prepares each one once


class ChunkSizer:
    """How many tokens go through next. Kept with the model: the next prompt starts at the speed last seen."""

    def __init__(self, limit: int, whole: bool = False) -> None:
        """whole: always the largest chunk, since each one reads paged weights again."""
        self._sizes = [limit] if whole else [n for n in CHUNK_SIZES if n < limit] + [limit]
        self._size = self._sizes[0]
        self.largest = 0  # that went through so far
        self.token_s = 0.0  # seconds a token took last, of a chunk and not of a short rest

    def take_whole(self) -> None:
        """From now on always the largest chunk."""
        self._sizes = self._sizes[-1:]
        self._size = self._sizes[0]

    def next(self, left: int) -> int:
        return min(self._size, left)

    def measured(self, n: int, seconds: float) -> None:
        """n tokens took so long. At most one step up at a time: a first chunk also pays for warming up."""
        self.largest = max(self.largest, n)
        if n >= CHUNK_SIZES[0]:
            self.token_s = seconds / n
        if n < self._size and seconds < CHUNK_TARGET_S:
            return  # the short rest of a prompt says nothing about longer chunks
        fitting = [size for size in self._sizes if size * seconds <= n * CHUNK_TARGET_S]
        above = self._sizes[min(self._sizes.index(self._size) + 1, len(self._sizes) - 1)]
        self._size = min(fitting[-1] if fitting else self._sizes[0], above)


def prefill(
    conversation: Conversation,
    ids: Sequence[int],
    sizer: ChunkSizer,
    turn_id: int = 0,
    cancelled: Callable[[], bool] = lambda: False,
    marks: Collection[int] = (),
) -> Generator[PromptProgress, None, np.ndarray | None]:
    """Put ids[conversation.length:] through; returns the last row's logits (1, V), or None when cancelled.

    marks: lengths that one may want to come back to.
    """
    cached, total = conversation.length, len(ids)
    yield PromptProgress(turn_id, cached, total, cached)
    while True:
        if conversation.length in marks:
            conversation.mark()
        if cancelled():
            return None
        end = min((at for at in marks if conversation.length < at), default=total)
        chunk = ids[conversation.length : end][: sizer.next(end - conversation.length)]
        start = time.perf_counter()
        logits = conversation.extend(chunk, rows=int(conversation.length + len(chunk) == total))
        sizer.measured(len(chunk), time.perf_counter() - start)
        yield PromptProgress(turn_id, conversation.length, total, cached)
        if conversation.length == total:
            if total in marks:
                conversation.mark()
            return logits
