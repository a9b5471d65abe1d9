"""Compiled loops over the known states: their hazards, and what they learn."""

from __future__ import annotations

import math

import numpy as np

from tree_placement.path._dp import compiled
from tree_placement.policy.columns import Columns, Integers, Reals

FIRST_AGE = 16.0
"""Prompts by which every age is longer, so that a state just written does not look in use."""

LEAST_HAZARD = math.exp(-14.0)
LARGEST_LOG = 40.0

LEARNING_RATE = 0.3

AGES, KINDS, USES, SKIPS, RATES, INTERVALS = 16, 8, 8, 4, 20, 17
ORIGINS, ORIGIN_STEPS = 6, 128

FEWEST_USES = (4, 8, 32)
"""Uses from which those of 4 and more fall into one step."""

_KIND_AGE = 0
_KIND_USES_SKIPS = _KIND_AGE + KINDS * AGES
_USES_AGE = _KIND_USES_SKIPS + KINDS * USES * SKIPS
_USES_SKIPS_RATE = _USES_AGE + USES * AGES
_USES_INTERVAL = _USES_SKIPS_RATE + 4 * SKIPS * RATES
_ORIGINS = _USES_INTERVAL + USES * INTERVALS
_CONSTANT = _ORIGINS + ORIGINS * 3 * ORIGIN_STEPS
WEIGHTS = _CONSTANT + 1
FAMILIES = 6 + ORIGINS


@compiled
def _doublings(x: float, most: int) -> int:
    """Return how often x can be halved before it is below 2, at most `most` times."""
    count = 0
    while x >= 2.0 and count < most:
        x *= 0.5
        count += 1
    return count


@compiled
def _clipped(x: float, most: int) -> int:
    return int(min(max(math.floor(x + 0.5), 0.0), most))


def first_weights() -> Reals:
    """Return the weights before anything is learned."""
    weights = np.zeros(WEIGHTS)
    uses = np.array([0, 1, 2, 3, *FEWEST_USES])
    prior = np.log((uses[:, None] + 1.0) / (np.arange(SKIPS) + 1.0))
    table = weights[_KIND_USES_SKIPS:_USES_AGE].reshape(KINDS, USES, SKIPS)
    table[:, : len(uses)] = prior
    return weights


@compiled
def _factors(
    age: float,
    life: float,
    interval: float,
    uses: int,
    skips: int,
    kind: int,
    origin: Integers,
    factors: Integers,
) -> None:
    """Write the weights' places that a state's families read."""
    age_step = _doublings(age + 1.0, AGES - 1)
    use_step = uses if uses < 4 else 4 + (uses >= FEWEST_USES[1]) + (uses >= FEWEST_USES[2])
    skip_step = min(skips, SKIPS - 1)
    rate_step = _clipped(math.log2((uses + 0.5) / (life + FIRST_AGE)) + 14.0, RATES - 1)
    interval_step = INTERVALS - 1
    if uses > 0:
        interval_step = _clipped(math.log2((age + 1.0) / (interval + 1.0)) + 8.0, INTERVALS - 2)
    factors[0] = _KIND_AGE + kind * AGES + age_step
    factors[1] = _KIND_USES_SKIPS + (kind * USES + use_step) * SKIPS + skip_step
    factors[2] = _USES_AGE + use_step * AGES + age_step
    factors[3] = _USES_SKIPS_RATE + (min(use_step, 3) * SKIPS + skip_step) * RATES + rate_step
    factors[4] = _USES_INTERVAL + use_step * INTERVALS + interval_step
    factors[5] = _CONSTANT
    for i in range(ORIGINS):
        place = (i * 3 + min(use_step, 2)) * ORIGIN_STEPS + origin[i]
        factors[6 + i] = _ORIGINS + place


@compiled
def _scale(prior: float, uses: int, factors: Integers, weights: Reals) -> float:
    """Return a state's hazard times its age."""
    # What a forecast said of a state counts less with each use that tells more.
    total = prior / (1.0 + uses)
    for i in range(FAMILIES):
        total += weights[factors[i]]
    return math.exp(min(max(total, -LARGEST_LOG), LARGEST_LOG))


@compiled
def _hazard(scale: float, age: float) -> float:
    return min(max(scale / (age + FIRST_AGE), LEAST_HAZARD), 1.0)


@compiled
def _factors_of_row(columns: Columns, row: int, now: float, factors: Integers) -> None:
    _factors(
        now - columns.passed[row],
        now - columns.written[row],
        columns.interval[row],
        columns.uses[row],
        columns.skips[row],
        columns.kind[row],
        columns.origin[row],
        factors,
    )


@compiled
def scale(columns: Columns, rows: Integers, now: float, weights: Reals) -> None:
    """Write the scales of some states; `weights` has a row a namespace."""
    factors = np.empty(FAMILIES, np.int64)
    for row in rows:
        _factors_of_row(columns, row, now, factors)
        columns.scale[row] = _scale(
            columns.prior[row], columns.uses[row], factors, weights[columns.model[row]]
        )


@compiled
def hazards(columns: Columns, now: float, rates: Reals) -> None:
    """Write the hazard of each known state, by its scale."""
    for row in range(columns.known.size):
        if columns.known[row]:
            rates[row] = _hazard(columns.scale[row], now - columns.passed[row])


@compiled
def hazard_of_new(kind: int, prior: float, origin: Integers, weights: Reals) -> float:
    """Return the hazard of a state that is written now; `weights` are its namespace's."""
    factors = np.empty(FAMILIES, np.int64)
    _factors(0.0, 0.0, 0.0, 0, 0, kind, origin, factors)
    return _hazard(_scale(prior, 0, factors, weights), 0.0)


@compiled
def count_use(columns: Columns, row: int, now: float, gradient: Reals) -> None:
    """Count that a prompt would have resumed from a state."""
    factors = np.empty(FAMILIES, np.int64)
    _factors_of_row(columns, row, now, factors)
    for i in range(FAMILIES):
        gradient[columns.model[row], factors[i]] -= 1.0


@compiled
def count_expected(
    columns: Columns, now: float, prompts: float, weights: Reals, gradient: Reals
) -> None:
    """Count the uses that were expected of the known states in a number of `prompts`."""
    factors = np.empty(FAMILIES, np.int64)
    for row in range(columns.known.size):
        if columns.known[row]:
            _factors_of_row(columns, row, now, factors)
            model = columns.model[row]
            state_scale = _scale(columns.prior[row], columns.uses[row], factors, weights[model])
            expected = prompts * _hazard(state_scale, now - columns.passed[row])
            for i in range(FAMILIES):
                gradient[model, factors[i]] += expected


@compiled
def update(weights: Reals, evidence: Reals, gradient: Reals) -> None:
    """Step down the gradient, and clear it."""
    for model in range(weights.shape[0]):
        for i in range(weights.shape[1]):
            slope = gradient[model, i]
            if slope != 0.0:
                evidence[model, i] += slope * slope
                weights[model, i] -= LEARNING_RATE * slope / math.sqrt(evidence[model, i])
                gradient[model, i] = 0.0


@compiled
def weigh(columns: Columns, rates: Reals, values: Reals) -> None:
    """Add up what each live state saves: its gap, times the rates of the states that it serves."""
    for row in range(columns.known.size):
        if columns.known[row] and columns.nearest[row] >= 0:
            values[columns.nearest[row]] += rates[row] * columns.gap[columns.nearest[row]]


@compiled
def least(columns: Columns, values: Reals) -> int:
    """Return the row of the live state of least value, of equal ones the lowest id; -1 if none."""
    found = -1
    for row in range(columns.live.size):
        if columns.live[row] and (
            found < 0
            or values[row] < values[found]
            or (values[row] == values[found] and columns.state[row] < columns.state[found])
        ):
            found = row
    return found
