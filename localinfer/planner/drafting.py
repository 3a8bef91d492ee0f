"""Drafting (speculative decoding): what guessing K tokens and checking them at once is worth.

Each guess is accepted with probability a, and the first refusal ends the round; a round always yields one token more
than it accepts. Costs are in any one unit of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from localinfer.records import dataclass


def expected_of(accepts: Sequence[float]) -> float:
    """Tokens a round yields on average when guess i is right with probability accepts[i] once those before it were."""
    total, all_so_far = 1.0, 1.0
    for accept in accepts:
        all_so_far *= accept
        total += all_so_far
    return total


def expected_tokens(accept: float, draft: int) -> float:
    """Tokens a round yields on average: 1 + a + a^2 + ... + a^K (so K + 1 at a = 1)."""
    return expected_of([accept] * draft)


def best_length(accepts: Sequence[float], cost: Sequence[float]) -> int:
    """Guesses of a round with the least time per token, the fewest of equals; 0 where drafting only costs.

    cost[k] is the time of a round with k guesses, cost[0] a plain step. At the best length a further guess would add
    more time per added token than a token costs: the marginal rule.
    """
    best, most = 0, 1.0 / cost[0]
    expected, all_so_far = 1.0, 1.0
    for k, accept in enumerate(accepts, 1):
        all_so_far *= accept
        expected += all_so_far
        if expected / cost[k] > most * (1 + 1e-12):
            best, most = k, expected / cost[k]
    return best


def time_per_token(accept: float, draft: int, verify: float, lookup: float = 0.0, per_draft: float = 0.0) -> float:
    """Time of a round (verify + lookup + K drafted tokens) over the tokens it yields."""
    return (verify + lookup + per_draft * draft) / expected_tokens(accept, draft)


def break_even_lookup(accept: float, draft: int, verify: float) -> float:
    """The largest lookup cost a round at which drafting is no slower than decoding."""
    return verify * (expected_tokens(accept, draft) - 1)


def index_pays_after(index_cost: float, plain_per_token: float, drafted_per_token: float) -> float:
    """Output tokens after which an index built at `index_cost` has paid for itself; inf where it never does."""
    gain = plain_per_token - drafted_per_token
    return index_cost / gain if gain > 0 else float("inf")


def speedup(accept: float, draft: int, draft_cost: float, verify_cost: float = 1.0) -> float:
    """Speed against plain decoding, whose token costs 1: `draft_cost` a drafted token, `verify_cost` a round."""
    return expected_tokens(accept, draft) / (draft_cost * draft + verify_cost)


@dataclass(frozen=True)
class DraftChoice:
    draft: int  # tokens to guess a round; 0: do not draft
    speedup: float


def best_draft(accept: float, draft_cost: float, verify_cost: float = 1.0, most: int = 32) -> DraftChoice:
    """The draft length with the largest speedup, the shortest of equals; 0 where drafting only costs."""
    costs = [1.0, *(draft_cost * k + verify_cost for k in range(1, most + 1))]
    draft = best_length([accept] * most, costs)
    return DraftChoice(draft, speedup(accept, draft, draft_cost, verify_cost) if draft else 1.0)


def break_even_accept(draft: int, draft_cost: float, verify_cost: float = 1.0) -> float:
    """The acceptance at which drafting neither gains nor costs; 1.0 where even certain guesses lose."""
    low, high = 0.0, 1.0
    for _ in range(60):  # halving: the speedup grows with acceptance
        middle = (low + high) / 2
        if speedup(middle, draft, draft_cost, verify_cost) < 1:
            low = middle
        else:
            high = middle
    return high


def mean_time_per_token(rounds: Iterable[tuple[float, int]]) -> float:
    """Seconds a token over (seconds, tokens) rounds: total over total, not the mean of their quotients."""
    seconds, tokens = map(sum, zip(*rounds, strict=True))
    return seconds / tokens


def point_mass_acceptance(p: Mapping[str, float], guess: str) -> float:
    """Probability that a guessed token is kept: the target's own probability of it, so the output stays exact."""
    return p.get(guess, 0.0)


def after_rejection(p: Mapping[str, float], guess: str) -> dict[str, float]:
    """The distribution to sample from after a refusal: the target's without the guess, scaled to sum to 1."""
    rest = {token: q for token, q in p.items() if token != guess and q > 0}
    total = sum(rest.values())
    return {token: q / total for token, q in rest.items()}
