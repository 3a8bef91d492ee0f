"""Logits -> token. Steps, in this order; each is skipped where its setting says "off":

1. repeat, presence and frequency penalties on the raw logits;
2. temperature 0: the largest logit, of equals the lowest id; done;
3. top-k: the k largest logits (equals at the border: lowest ids);
4. top-p over the probabilities of what is left: the shortest run from the most likely on that reaches p;
5. min-p: what has at least min_p times the best probability;
6. temperature, then one draw by inverse transform over the tokens in falling order.

The draw for a position is `uniform(seed, position)`: no generator state, so a verified draft draws what plain decoding
draws. V is the vocabulary; work is a few passes over V and a sort of the
few candidates, never of V, unless the distribution is so flat that top-p needs it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import numpy as np

from localinfer.engine.params import SamplingParams
from localinfer.engine.random_stream import uniform

_FEW = 512  # among so many of the largest, top-p is sought first
_BLOCK = 128  # logits whose maximum stands for them when a bound for the k-th largest is sought


def fresh_seed() -> int:
    return int.from_bytes(os.urandom(4), "little")


class Sampler:
    """One turn's sampler: `prompt` for the repeat window, then `sample` and `accept`, position by position."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int] = ()) -> None:
        self.params = params
        self.seed = fresh_seed() if params.seed is None else params.seed
        self.generated: Counter[int] = Counter()  # for presence and frequency
        self.recent: list[int] = list(prompt) if params.repeat_penalty != 1.0 else []

    def sample(self, logits: np.ndarray, position: int) -> int:
        """logits (V,) float32, left as they are; position: index in the sequence of the token to be drawn."""
        p = self.params
        logits = self._penalized(logits)
        if p.temperature == 0.0:
            return int(np.argmax(logits))
        ids, kept = candidates(logits, p.top_k, p.top_p, p.min_p)
        return int(ids[draw(kept, p.temperature, uniform(self.seed, position))])

    def accept(self, token: int) -> None:
        """The token joins the text."""
        self.generated[token] += 1
        if self.params.repeat_penalty != 1.0:
            self.recent.append(token)

    def _penalized(self, logits: np.ndarray) -> np.ndarray:
        p = self.params
        if p.repeat_penalty == 1.0 and not (p.presence_penalty or p.frequency_penalty):
            return logits
        logits = logits.copy()
        if p.repeat_penalty != 1.0 and self.recent:
            seen = np.unique(np.array(self.recent[-p.penalty_window :] if p.penalty_window else self.recent))
            values = logits[seen]
            logits[seen] = np.where(values > 0, values / p.repeat_penalty, values * p.repeat_penalty)
        if self.generated and (p.presence_penalty or p.frequency_penalty):
            seen = np.fromiter(self.generated, np.int64, len(self.generated))
            counts = np.fromiter(self.generated.values(), np.float32, len(self.generated))
            logits[seen] -= p.presence_penalty + p.frequency_penalty * counts
        return logits


def candidates(logits: np.ndarray, top_k: int, top_p: float, min_p: float) -> tuple[np.ndarray, np.ndarray]:
    """What top-k, top-p and min-p leave of logits (V,): ids and logits, best first, equals by id."""
    if 0 < top_k < logits.size:
        ids = largest(logits, top_k)
    elif top_p < 1.0:
        return _min_p(*_top_p_of_all(logits, top_p), min_p)
    elif min_p > 0.0:
        with np.errstate(divide="ignore"):
            ids = _falling(logits, np.flatnonzero(logits >= logits.max() + np.log(np.float32(min_p))))
    else:
        ids = np.arange(logits.size)  # nothing is cut: any fixed order serves the draw
        return ids, logits
    kept = logits[ids]
    if top_p < 1.0:
        ids, kept = _top_p(ids, kept, top_p, _exp(kept, kept[0]).sum(dtype=np.float64))
    return _min_p(ids, kept, min_p)


def largest(logits: np.ndarray, k: int) -> np.ndarray:
    """Ids of the k largest, best first, equals by id. At least k values reach the k-th largest block maximum."""
    n_blocks = logits.size // _BLOCK
    if n_blocks >= 4 * k:
        maxima = logits[: n_blocks * _BLOCK].reshape(n_blocks, _BLOCK).max(axis=1)
        bound = np.partition(maxima, n_blocks - k)[n_blocks - k]
    else:
        bound = np.partition(logits, logits.size - k)[logits.size - k]
    return _falling(logits, np.flatnonzero(logits >= bound))[:k]


def _falling(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return ids[np.argsort(-logits[ids], kind="stable")]  # ids come in rising order: equals stay so


def _exp(logits: np.ndarray, best: np.floating) -> np.ndarray:
    return np.exp(logits - best)


def _top_p_of_all(logits: np.ndarray, top_p: float) -> tuple[np.ndarray, np.ndarray]:
    """The top-p set of the whole vocabulary: among the _FEW largest in most cases, else among what may be in it.

    All that is less likely than (1 - p) / V has at most 1 - p together, so the set lies in the rest.
    """
    p = _exp(logits, logits.max())
    total = p.sum(dtype=np.float64)
    if logits.size > 4 * _FEW:
        ids, kept = _top_p(few := largest(logits, _FEW), logits[few], top_p, total)
        if ids.size < _FEW:
            return ids, kept
    bound = min(total * (1.0 - top_p) / logits.size, 1.0)
    ids = _falling(logits, np.flatnonzero(p >= bound))
    return _top_p(ids, logits[ids], top_p, total)


def _top_p(ids: np.ndarray, kept: np.ndarray, top_p: float, total: float) -> tuple[np.ndarray, np.ndarray]:
    reached = np.cumsum(_exp(kept, kept[0]), dtype=np.float64)
    n = int(np.searchsorted(reached, top_p * total)) + 1
    return ids[:n], kept[:n]


def _min_p(ids: np.ndarray, kept: np.ndarray, min_p: float) -> tuple[np.ndarray, np.ndarray]:
    """ids are best first, so what stays is a run from the start; the best always stays."""
    if min_p <= 0.0:
        return ids, kept
    n = max(1, int(np.count_nonzero(_exp(kept, kept[0]) >= min_p)))
    return ids[:n], kept[:n]


def draw(kept: np.ndarray, temperature: float, u: float) -> int:
    """Index drawn from softmax(kept / temperature) by inverse transform of u in [0, 1).

    Sums of blocks first, then inside one block: one pass in float32 over the whole, float64 only over the sums.
    """
    p = np.exp((kept - kept.max()) * np.float32(1.0 / max(temperature, 1e-6)))
    starts = np.arange(0, p.size, _BLOCK)
    sums = np.cumsum(np.add.reduceat(p, starts), dtype=np.float64)
    target = u * sums[-1]
    block = min(int(np.searchsorted(sums, target, side="right")), sums.size - 1)
    start = block * _BLOCK
    inside = np.cumsum(p[start : start + _BLOCK], dtype=np.float64)
    left = target - (sums[block - 1] if block else 0.0)
    return start + min(int(np.searchsorted(inside, left, side="right")), inside.size - 1)
