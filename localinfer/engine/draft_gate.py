"""How many guesses are worth checking now: what a round costs, and how often guesses of this kind were right.

Both are learned while decoding. Costs are kept relative to a plain step, so they hold while the context grows; guesses
are sorted by how many tokens matched before them and by what other places of the text say. A round drafts where its
expected time per token, by the planner's formula, is below that of a plain step. Two things bound the loss where
guesses fail: an account of the time that drafting saved or cost in this answer, which must not fall below a small share
of the time spent decoding it; and the estimates themselves, which fall with each refusal and creep back while nothing
is drafted, so that drafting is tried again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from localinfer.engine.ngram_index import Support
from localinfer.engine.params import MAX_DRAFT
from localinfer.planner.drafting import best_length
from localinfer.records import dataclass, field

# Matched tokens before a guess, at least: how often it is right before anything is known of this conversation, when it
# stands alone, other places agree, or dispute it. Measured on the drafting corpus (greedy and at temperature 0.8).
PRIOR_ACCEPTANCE = (
    (2, (0.50, 0.83, 0.20)), (3, (0.65, 0.86, 0.25)), (4, (0.78, 0.93, 0.25)),
    (6, (0.72, 0.92, 0.35)), (9, (0.88, 0.95, 0.55)), (16, (0.95, 0.98, 0.85)),
)  # fmt: skip
_LOWEST = [low for low, _ in PRIOR_ACCEPTANCE]
GuessKind = tuple[int, Support]  # row of PRIOR_ACCEPTANCE, support
PRIOR_WEIGHT = 4.0  # guesses that the prior counts for
FORGET = 0.97  # weight of what was known, at each new guess
RECOVER = 0.99  # the same, at each round in which the gate said no
PRIOR_ROW = 0.35  # cost of a further row, in plain steps, before it was measured
NEW_COST = 0.25  # weight of a new measurement of a round's cost
STRAIGHTEN = 0.02  # weight of the line in the cost of a length, each round that has another
OUTLIER = 3.0  # a round beyond this times expectation counts as this: other programs, rather than rows
LOSS_SHARE = 0.01  # of the time spent decoding that drafting may have cost at any time
LOSS_START = 0.3  # plain steps that it may cost beyond that, to begin with


def kind_of(matched: int, support: Support) -> GuessKind:
    """The kind of a guess after so many agreeing tokens."""
    return max(0, bisect_right(_LOWEST, matched) - 1), support


@dataclass
class _Rate:
    prior: float
    hits: float = 0.0
    tries: float = 0.0

    @property
    def value(self) -> float:
        return (self.hits + PRIOR_WEIGHT * self.prior) / (self.tries + PRIOR_WEIGHT)

    def saw(self, hit: bool) -> None:
        self.hits = self.hits * FORGET + hit
        self.tries = self.tries * FORGET + 1

    def fade(self) -> None:
        self.hits *= RECOVER
        self.tries *= RECOVER


@dataclass
class DraftGate:
    """`length` says how many guesses to check; `observe` what came of it. Times in seconds."""

    step_s: float = 0.0  # a plain step now; 0: not measured
    spent_s: float = 0.0  # time decoding
    saved_s: float = 0.0  # against plain steps, by the learned costs
    _costs: list[float] = field(default_factory=lambda: [1.0 + PRIOR_ROW * k for k in range(MAX_DRAFT + 1)])
    _measured: list[bool] = field(default_factory=lambda: [False] * (MAX_DRAFT + 1))
    _row: float = PRIOR_ROW  # cost of a row, over all lengths
    _rates: dict[GuessKind, _Rate] = field(
        default_factory=lambda: {
            (i, s): _Rate(priors[s]) for i, (_, priors) in enumerate(PRIOR_ACCEPTANCE) for s in Support
        }
    )

    def begin_answer(self) -> None:
        """What earlier answers saved is not for this one to lose."""
        self.spent_s = self.saved_s = 0.0

    def length(self, kinds: Sequence[GuessKind]) -> int:
        """How many of these guesses are worth checking; 0: none. None before a plain step was timed."""
        if not self.step_s or not kinds:
            return 0
        kinds = kinds[: self.longest]
        k = best_length([self._rates[kind].value for kind in kinds], self._costs[: len(kinds) + 1])
        while k and not self._may_lose(k):
            k -= 1
        if not k:
            self._rates[kinds[0]].fade()
        return k

    def observe(self, kinds: Sequence[GuessKind], accepted: int, seconds: float) -> None:
        """A round with guesses of these kinds, of which so many were accepted, took so long."""
        proposed = len(kinds)
        if not proposed:
            self._learn_step(seconds)
            return
        self._learn_cost(proposed, seconds)
        for i, kind in enumerate(kinds[: accepted + 1]):
            self._rates[kind].saw(i < accepted)
        expected = self._costs[proposed] * self.step_s
        self.spent_s += expected
        self.saved_s += (1 + accepted) * self.step_s - expected

    def _learn_step(self, seconds: float) -> None:
        if not self.step_s:
            self.step_s = seconds
        else:
            self.step_s += NEW_COST * (min(seconds, OUTLIER * self.step_s) - self.step_s)
        self.spent_s += self.step_s

    def _learn_cost(self, k: int, seconds: float) -> None:
        """Lengths that were not timed lately lean towards a straight line through what was."""
        self.step_s = min(self.step_s or seconds, seconds)  # a plain step is no slower than a round with guesses
        ratio = min(seconds / self.step_s, OUTLIER * self._costs[k])
        self._row += NEW_COST * ((ratio - 1) / k - self._row)
        for other in range(1, MAX_DRAFT + 1):
            line = 1 + self._row * other
            if other == k:
                self._costs[k] += NEW_COST * (ratio - self._costs[k]) if self._measured[k] else ratio - self._costs[k]
            elif self._measured[other]:
                self._costs[other] += STRAIGHTEN * (line - self._costs[other])
            else:
                self._costs[other] = line
        self._measured[k] = True

    @property
    def longest(self) -> int:
        """The most guesses that may be tried: twice the longest that was timed, since the line may break beyond."""
        return min(MAX_DRAFT, 2 * next((k for k in range(MAX_DRAFT, 0, -1) if self._measured[k]), 1))

    def _may_lose(self, k: int) -> bool:
        """Would the account stand even if all k guesses failed?"""
        allowed = LOSS_SHARE * self.spent_s + LOSS_START * self.step_s
        return self.saved_s - (self._costs[k] - 1.0) * self.step_s >= -allowed
