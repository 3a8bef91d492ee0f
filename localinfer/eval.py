"""How well a model predicts a text, and what quantizing its KV cache, or its weights further, costs.

Windows are taken as llama.cpp's perplexity tool takes them (tools/perplexity in its repository), so the numbers
compare: the text is tokenized once, cut into windows of `window` tokens without overlap, the rest at the end is left
out; a model that wants a start token gets it in place of each window's first token; and of each window only the second
half is scored, where every token has at least half a window before it. `score="all"` scores every token but the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from localinfer.errors import UsageError

if TYPE_CHECKING:
    from localinfer.engine.engine import Engine

Progress = Callable[[int, int, float], None]  # windows done, windows in all, perplexity so far


@dataclass
class Perplexity:
    """Sums over the scored tokens."""

    n: int = 0
    nll: float = 0.0
    squares: float = 0.0

    def add(self, nlls: np.ndarray) -> None:
        self.n += nlls.size
        self.nll += float(nlls.sum())
        self.squares += float((nlls**2).sum())

    @property
    def mean(self) -> float:
        return self.nll / self.n if self.n else float("nan")

    @property
    def ppl(self) -> float:
        return float(np.exp(self.mean))

    @property
    def error(self) -> float:
        """Standard error of the perplexity, taking tokens as independent."""
        if self.n < 2:
            return float("nan")
        variance = max(0.0, self.squares / self.n - self.mean**2)
        return self.ppl * (variance / (self.n - 1)) ** 0.5


@dataclass
class Divergence:
    """KL divergence of one model's predictions from another's, in nats, token by token."""

    kl: list[np.ndarray] = field(default_factory=list)
    same_best: int = 0
    n: int = 0
    perplexity: Perplexity = field(default_factory=Perplexity)

    def add(self, reference: np.ndarray, other: np.ndarray, targets: np.ndarray) -> None:
        """Log-probabilities (T, V) of both, and the tokens that came, (T,)."""
        self.kl.append((np.exp(reference) * (reference - other)).sum(axis=1, dtype=np.float64))
        self.same_best += int((reference.argmax(axis=1) == other.argmax(axis=1)).sum())
        self.n += len(targets)
        self.perplexity.add(_nll(other, targets))

    def as_json(self) -> dict[str, float]:
        kl = np.concatenate(self.kl)
        return {
            "kld_mean": float(kl.mean()),
            "kld_p99": float(np.quantile(kl, 0.99)),
            "top1": self.same_best / self.n,
            "ppl": self.perplexity.ppl,
        }


@dataclass(frozen=True)
class Window:
    """ids go in; the last `scored` rows but one predict the tokens after them."""

    ids: list[int]
    scored: int  # tokens whose probability counts: the last ones of ids

    @property
    def targets(self) -> np.ndarray:
        return np.array(self.ids[len(self.ids) - self.scored :])


def windows(ids: Sequence[int], window: int, score: str = "half", start_token: int | None = None) -> list[Window]:
    """UsageError where the text has fewer tokens than a window."""
    if window < 4:
        raise UsageError(f"--window: expected 4 or more, found {window}")
    if len(ids) < window:
        raise UsageError(
            f"text: {len(ids)} tokens, expected at least a window of {window}", "--window with a smaller number"
        )
    scored = window - 1 if score == "all" else window - 1 - window // 2
    found = []
    for start in range(0, len(ids) - window + 1, window):
        part = list(ids[start : start + window])
        if start_token is not None:
            part[0] = start_token
        found.append(Window(part, scored))
    return found


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis; sums in float64."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    sums = np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64)
    return shifted - np.log(sums).astype(np.float32)


def _nll(log_p: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return -log_p[np.arange(len(targets)), targets].astype(np.float64)


def evaluate(
    engine: Engine, parts: Sequence[Window], others: dict[str, Engine], progress: Progress = lambda *_: None
) -> tuple[Perplexity, dict[str, Divergence]]:
    """Perplexity of `engine`, and how far each of the others is from it, in one pass over the windows."""
    total, apart = Perplexity(), {name: Divergence() for name in others}
    for done, part in enumerate(parts, 1):
        rows = _log_probabilities(engine, part)
        beside = {name: _log_probabilities(other, part) for name, other in others.items()}
        at = 0
        for log_p in rows:
            targets = part.targets[at : at + len(log_p)]
            at += len(log_p)
            total.add(_nll(log_p, targets))
            for name, pieces in beside.items():
                apart[name].add(log_p, next(pieces), targets)
        progress(done, len(parts), total.ppl)
    return total, apart


def _log_probabilities(engine: Engine, part: Window) -> Iterator[np.ndarray]:
    """Log-probabilities of what follows each scored position. Pieces have the same sizes for every engine."""
    ids = part.ids[:-1]  # nothing is asked after the last token
    for logits in engine.logit_chunks(ids, part.scored, chunk=_chunk(engine)):
        yield log_softmax(logits)


def _chunk(engine: Engine) -> int:
    """Tokens at a time: some 64 MB of logits."""
    return max(1, min(256, 2**24 // engine.config.n_vocab))


def as_json(total: Perplexity, apart: dict[str, Divergence]) -> dict[str, Any]:
    return {
        "tokens": total.n,
        "mean_nll": total.mean,
        "ppl": total.ppl,
        "ppl_error": total.error,
        "kv": {name: d.as_json() for name, d in apart.items()},
    }
