"""Compiled loops over the known states: their hazards, and what they learn."""

from __future__ import annotations

import math

import numpy as np

from tree_placement.path._dp import compiled
from tree_placement.policy.columns import Columns, Flags, Integers, Reals

FIRST_AGE = 16.0
"""Prompts by which every age is longer, so that a state just written does not look in use."""

LEAST_HAZARD = math.exp(-14.0)
LARGEST_LOG = 40.0

LEARNING_RATE = 0.3

FIRST_USES, FIRST_EXPOSURE = 0.5, 30.0
"""What the mean rate of a kind begins with, and for how many uses it counts in a state's own."""

LARGEST_ODDS = 10.0
"""Logarithm of the odds between the two hazards at most, so that new evidence turns them soon."""

AGES, KINDS, USES, SKIPS, RATES, INTERVALS = 16, 8, 8, 4, 20, 17
ORIGINS, ORIGIN_STEPS = 6, 128

FEWEST_USES = (4, 8, 32)
"""Uses from which those of 4 and more fall into one step."""

_KIND_USES_SKIPS = 0
_USES_AGE = _KIND_USES_SKIPS + KINDS * USES * SKIPS
_USES_SKIPS_RATE = _USES_AGE + USES * AGES
_USES_INTERVAL = _USES_SKIPS_RATE + 4 * SKIPS * RATES
_ORIGINS = _USES_INTERVAL + USES * INTERVALS
_CONSTANT = _ORIGINS + ORIGINS * 3 * ORIGIN_STEPS
WEIGHTS = _CONSTANT + 1
FAMILIES = 5 + ORIGINS

_KIND_USES = KINDS * USES
_KIND_EXPOSURE = _KIND_USES + KINDS
RECORDS = _KIND_EXPOSURE + KINDS


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
def _use_step(uses: int) -> int:
    return uses if uses < 4 else 4 + (uses >= FEWEST_USES[1]) + (uses >= FEWEST_USES[2])


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
    use_step = _use_step(uses)
    skip_step = min(skips, SKIPS - 1)
    rate_step = _clipped(math.log2((uses + 0.5) / (life + FIRST_AGE)) + 14.0, RATES - 1)
    interval_step = INTERVALS - 1
    if uses > 0:
        interval_step = _clipped(math.log2((age + 1.0) / (interval + 1.0)) + 8.0, INTERVALS - 2)
    factors[0] = _KIND_USES_SKIPS + (kind * USES + use_step) * SKIPS + skip_step
    factors[1] = _USES_AGE + use_step * AGES + age_step
    factors[2] = _USES_SKIPS_RATE + (min(use_step, 3) * SKIPS + skip_step) * RATES + rate_step
    factors[3] = _USES_INTERVAL + use_step * INTERVALS + interval_step
    factors[4] = _CONSTANT
    for i in range(ORIGINS):
        place = (i * 3 + min(use_step, 2)) * ORIGIN_STEPS + origin[i]
        factors[5 + i] = _ORIGINS + place


def are_records(records: Reals) -> bool:
    """Tell whether a namespace's records can be its: odds, uses and exposure of each kind.

    The odds of a batch that is not over may be beyond their bounds, but are numbers.
    """
    return bool(np.isfinite(records).all() and (records[_KIND_USES:] >= 0.0).all())


@compiled
def _scale(prior: float, uses: int, factors: Integers, weights: Reals) -> float:
    """Return a state's aging hazard times its age."""
    # What a forecast said of a state counts less with each use that tells more.
    total = prior / (1.0 + uses)
    for i in range(FAMILIES):
        total += weights[factors[i]]
    return math.exp(min(max(total, -LARGEST_LOG), LARGEST_LOG))


@compiled
def _bounded(hazard: float) -> float:
    return min(max(hazard, LEAST_HAZARD), 1.0)


@compiled
def _aging(scale: float, age: float) -> float:
    return _bounded(scale / (age + FIRST_AGE))


@compiled
def _steady(life: float, uses: int, kind: int, prior: float, records: Reals) -> float:
    """Return the mean rate of a state's uses, a Gamma prior being that of its kind and share."""
    exposure = records[_KIND_EXPOSURE + kind] + FIRST_EXPOSURE
    mean = math.exp(prior) * (records[_KIND_USES + kind] + FIRST_USES) / exposure
    return _bounded((uses + FIRST_USES) / (life + FIRST_USES / mean))


@compiled
def _odds_of(kind: int, uses: int) -> int:
    """Return the place of the odds for states of a kind with so many uses."""
    return kind * USES + _use_step(uses)


@compiled
def _share_steady(kind: int, uses: int, records: Reals) -> float:
    return 1.0 / (1.0 + math.exp(-records[_odds_of(kind, uses)]))


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
def scale(columns: Columns, rows: Integers, now: float, weights: Reals, records: Reals) -> None:
    """Write the scales and steady parts of some states; `weights` and `records` have a row a
    namespace."""
    factors = np.empty(FAMILIES, np.int64)
    for row in rows:
        _factors_of_row(columns, row, now, factors)
        uses, kind, model = columns.uses[row], columns.kind[row], columns.model[row]
        share = _share_steady(kind, uses, records[model])
        aging = _scale(columns.prior[row], uses, factors, weights[model])
        columns.scale[row] = (1.0 - share) * aging
        life = now - columns.written[row]
        columns.steady[row] = share * _steady(life, uses, kind, columns.prior[row], records[model])


@compiled
def hazards(
    known: Flags,
    passed: Reals,
    scales: Reals,
    steady: Reals,
    nearest: Integers,
    now: float,
    rates: Reals,
    served: Reals,
) -> None:
    """Write the hazard of each known state, by its scale and its steady part, and to each live
    one's place the sum of those that it serves."""
    served[:] = 0.0
    for row in range(known.size):
        if known[row]:
            rates[row] = _bounded(scales[row] / (now - passed[row] + FIRST_AGE) + steady[row])
            if nearest[row] >= 0:
                served[nearest[row]] += rates[row]


@compiled
def hazard_of_new(
    kind: int, prior: float, origin: Integers, weights: Reals, records: Reals
) -> float:
    """Return the hazard of a state that is written now; `weights` and `records` are its
    namespace's."""
    factors = np.empty(FAMILIES, np.int64)
    _factors(0.0, 0.0, 0.0, 0, 0, kind, origin, factors)
    share = _share_steady(kind, 0, records)
    aging = _scale(prior, 0, factors, weights) / FIRST_AGE
    return _bounded((1.0 - share) * aging + share * _steady(0.0, 0, kind, prior, records))


@compiled
def count_use(
    columns: Columns, row: int, now: float, weights: Reals, gradient: Reals, records: Reals
) -> None:
    """Count that a prompt would have resumed from a state."""
    factors = np.empty(FAMILIES, np.int64)
    _factors_of_row(columns, row, now, factors)
    uses, kind, model = columns.uses[row], columns.kind[row], columns.model[row]
    for i in range(FAMILIES):
        gradient[model, factors[i]] -= 1.0
    state_scale = _scale(columns.prior[row], uses, factors, weights[model])
    aging = _aging(state_scale, now - columns.passed[row])
    steady = _steady(now - columns.written[row], uses, kind, columns.prior[row], records[model])
    records[model, _odds_of(kind, uses)] += math.log(steady / aging)
    records[model, _KIND_USES + kind] += 1.0


@compiled
def count_expected(
    columns: Columns,
    now: float,
    prompts: float,
    weights: Reals,
    gradient: Reals,
    records: Reals,
) -> None:
    """Count the uses that were expected of the known states in a number of `prompts`."""
    factors = np.empty(FAMILIES, np.int64)
    for row in range(columns.known.size):
        if columns.known[row]:
            _factors_of_row(columns, row, now, factors)
            uses, kind, model = columns.uses[row], columns.kind[row], columns.model[row]
            state_scale = _scale(columns.prior[row], uses, factors, weights[model])
            aging = prompts * _aging(state_scale, now - columns.passed[row])
            for i in range(FAMILIES):
                gradient[model, factors[i]] += aging
            steady = prompts * _steady(
                now - columns.written[row], uses, kind, columns.prior[row], records[model]
            )
            records[model, _odds_of(kind, uses)] += aging - steady
    # At the end, so that the rate of a kind is one for all its states.
    for row in range(columns.known.size):
        if columns.known[row]:
            share = math.exp(columns.prior[row])
            records[columns.model[row], _KIND_EXPOSURE + columns.kind[row]] += prompts * share


@compiled
def update(weights: Reals, evidence: Reals, gradient: Reals, records: Reals) -> None:
    """Step down the gradient and clear it, and bound the odds."""
    for model in range(weights.shape[0]):
        for i in range(weights.shape[1]):
            slope = gradient[model, i]
            if slope != 0.0:
                evidence[model, i] += slope * slope
                weights[model, i] -= LEARNING_RATE * slope / math.sqrt(evidence[model, i])
                gradient[model, i] = 0.0
        for i in range(_KIND_USES):
            records[model, i] = min(max(records[model, i], -LARGEST_ODDS), LARGEST_ODDS)


@compiled
def least(live: Flags, state: Integers, gaps: Reals, served: Reals) -> int:
    """Return the row of the live state of least value, of equal ones the lowest id; -1 if none."""
    found, fewest = -1, np.inf
    for row in range(live.size):
        if live[row]:
            value = gaps[row] * served[row]
            if value < fewest or (value == fewest and state[row] < state[found]):
                found, fewest = row, value
    return found
