"""What drafting can gain on a device: the cost of checking guesses there, and the best length by that cost.

v(m) is the time of a pass over m tokens, in plain steps. Measured by `bench --verify` where the plan is for this
machine, else at best: the bytes that m tokens read together at full bandwidth, or their multiplications at the full
rate, whichever takes longer. A pass over m tokens reads the weights once (of experts those that m tokens choose) and
the KV once, so v stays near 1 until the multiplications outweigh the reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from localinfer.planner.drafting import best_length, expected_tokens
from localinfer.planner.efficiency import MeasuredSpeed
from localinfer.planner.plan import Plan
from localinfer.planner.speed import kv_read_bytes, prefill_flops, step_bound_s, weight_read_bytes

MOST = 15  # guesses a round that are considered
ACCEPTS = (0.5, 0.7, 0.9)  # shares of guesses that hold, for which a forecast is given


class DraftGain(NamedTuple):
    """With this share of guesses right: the best number of guesses a round (0: none) and the speed against off."""

    accept: float
    draft: int
    gain: float


class DraftForecast(NamedTuple):
    """`verify_cost[m - 1]`: a pass over m tokens, in plain steps."""

    verify_cost: tuple[float, ...]
    gains: tuple[DraftGain, ...]
    basis: str


def draft_forecast(plan: Plan, measured: MeasuredSpeed | None = None) -> DraftForecast | None:
    """For decoding at the plan's context. None where neither v(m) was measured nor the device's rates are known."""
    if measured and len(measured.verify) > 1:
        cost, basis = interpolated(measured.verify, MOST + 1), "from what bench measured of checking guesses here"
    elif (found := verify_bound(plan)) is not None:
        cost, basis = found, "from the bytes and multiplications of checking guesses, at best: not measured"
    else:
        return None
    return DraftForecast(tuple(cost), tuple(best_gain(accept, cost) for accept in ACCEPTS), basis)


def best_gain(accept: float, verify_cost: Sequence[float]) -> DraftGain:
    """verify_cost[m - 1] for m tokens, verify_cost[0] = 1: the best draft at this acceptance."""
    draft = best_length([accept] * (len(verify_cost) - 1), verify_cost)
    return DraftGain(accept, draft, expected_tokens(accept, draft) / verify_cost[draft])


def verify_bound(plan: Plan) -> list[float] | None:
    """v(1) to v(MOST + 1) at best. None where bandwidth or FLOP/s of the device, or the model's config, is unknown."""
    model, budget, depth = plan.model, plan.budget, plan.ask.ctx
    step = None if plan.unknown else step_bound_s(plan, kv_read_bytes(plan, depth))
    if step is None or not budget.flops or not budget.bandwidth_bytes_s:
        return None
    read_one = weight_read_bytes(model)
    costs = []
    for m in range(1, MOST + 2):
        flops = prefill_flops(model, m, depth) + 2 * (m - 1) * model.touched.output_values
        read_s = step + (weight_read_bytes(model, m) - read_one) / budget.bandwidth_bytes_s
        costs.append(max(read_s, flops / budget.flops))
    return [cost / costs[0] for cost in costs]


def interpolated(measured: dict[int, float], most: int) -> list[float]:
    """Costs of 1 to `most` tokens from those measured (1 among them): straight lines between, and on beyond the last.

    A pass over more tokens costs no less, so noise that says otherwise is lifted.
    """
    known = sorted(measured.items())
    floor, points = 0.0, []
    for m, cost in known:
        floor = max(floor, cost)
        points.append((m, floor))
    return [_at(points, m) / points[0][1] for m in range(1, most + 1)]


def _at(points: Sequence[tuple[int, float]], m: int) -> float:
    right = next((i for i, (x, _) in enumerate(points) if x >= m), len(points) - 1)
    (x0, y0), (x1, y1) = points[max(0, right - 1)], points[max(1, right)]
    return y0 + (y1 - y0) * (m - x0) / (x1 - x0)
