"""Guarantees against simulation: each holds, and a constant a little smaller would not."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tree_placement import PrefillCost, SparseWeights, expected_recompute, place
from tree_placement.overlap.guarantees import (
    best_decay,
    decayed_error,
    effective_sample_size,
    estimation_error,
    mean_age,
    plug_in_regret,
    stability,
)

CONVEX = PrefillCost(linear=0.5, quadratic=0.1)
FloatArray = NDArray[np.float64]


@pytest.mark.parametrize("cost", [PrefillCost(), CONVEX])
@pytest.mark.parametrize("sums", ["equal", "any"])
def test_stability_holds(cost: PrefillCost, sums: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(250):
        length = int(rng.integers(1, 40))
        p, q = rng.dirichlet(np.full(length, 0.2), 2)
        if sums == "any":
            p, q = p * rng.uniform(0, 3), q * rng.uniform(0, 3)
        bound = stability(length, float(np.abs(p - q).sum()), cost=cost)
        bound *= 0.5 if sums == "equal" else 1.0
        states = rng.integers(1, length + 1, rng.integers(0, 4))
        of_p, of_q = (expected_recompute(each, states, cost=cost) for each in (p, q))
        assert abs(of_p - of_q) <= bound + 1e-12
        least_of_p, least_of_q = (place(each, 2, cost=cost).cost for each in (p, q))
        assert abs(least_of_p - least_of_q) <= bound + 1e-12


@pytest.mark.parametrize("cost", [PrefillCost(), CONVEX])
def test_no_smaller_constant_makes_stability_hold(cost: PrefillCost) -> None:
    length = 200
    at_end = SparseWeights([length], [1.0])
    assert expected_recompute(at_end, [], cost=cost) > 0.999 * stability(length, 1.0, cost=cost)
    at_start = SparseWeights([1], [1.0])
    moved = expected_recompute(at_end, [], cost=cost) - expected_recompute(at_start, [], cost=cost)
    assert moved > 0.99 * 0.5 * stability(length, 2.0, cost=cost), "half of it for equal sums"


@pytest.mark.parametrize("cost", [PrefillCost(), CONVEX])
def test_plug_in_regret_holds(cost: PrefillCost) -> None:
    rng = np.random.default_rng(2)
    failures, largest = 0, 0.0
    for _ in range(400):
        length, size = int(rng.integers(2, 30)), int(rng.integers(1, 200))
        p = rng.dirichlet(np.full(length, 0.5))
        q = rng.multinomial(size, p) / size
        chosen = place(q, 2, cost=cost)
        regret = expected_recompute(p, chosen.depths, cost=cost) - place(p, 2, cost=cost).cost
        distance = float(np.abs(p - q).sum())
        assert regret <= plug_in_regret(length, distance, cost=cost) + 1e-12
        error = estimation_error(length, size, failure=0.1)
        failures += regret > plug_in_regret(length, error, cost=cost)
        largest = max(largest, regret)
    assert failures <= 0.1 * 400
    assert largest > 0.0


def test_two_nearly_equal_depths_come_within_a_ninth_of_the_regret() -> None:
    """Which of two depths deserves the state is a coin that is biased too little to see."""
    length, size, failure = 1_000, 400, 0.01
    at_end = 0.5 - 1.1 / math.sqrt(size)
    depths = [length // 2, length]
    truth = SparseWeights(depths, [1.0 - at_end, at_end])
    drawn = np.random.default_rng(3).binomial(size, at_end, 100_000)
    counts, times = np.unique(drawn, return_counts=True)
    regrets = np.array(
        [
            expected_recompute(truth, place(SparseWeights(depths, [size - n, n]), 1).depths)
            for n in counts.tolist()
        ]
    )
    regrets -= place(truth, 1).cost
    bound = plug_in_regret(length, estimation_error(2, size, failure))
    assert times[regrets > bound].sum() <= failure * drawn.size
    assert times[regrets > bound / 9].sum() > failure * drawn.size


@pytest.mark.parametrize("cost", [PrefillCost(), CONVEX])
def test_half_of_the_regret_is_attained_by_weights_of_other_sums(cost: PrefillCost) -> None:
    """A state at depth 1 is as good for q as one at the end, which p weighs a little more."""
    length, more = 1_000, 0.5
    at_one, at_end = float(cost(1)), float(cost(length))
    q = SparseWeights([1, length], [(1.0 + 1e-9) * (at_end - at_one), at_one])
    p = SparseWeights(q.depths, q.weights + np.array([0.0, more]))
    chosen = place(q, 1, cost=cost)
    assert chosen.depths.tolist() == [1]
    regret = expected_recompute(p, chosen.depths, cost=cost) - place(p, 1, cost=cost).cost
    bound = plug_in_regret(length, more, cost=cost)
    assert 0.99 * 0.5 * bound < regret <= 0.5 * bound


@pytest.mark.parametrize("cost", [PrefillCost(), CONVEX])
def test_half_of_the_regret_holds_for_weights_of_any_sums(cost: PrefillCost) -> None:
    rng = np.random.default_rng(8)
    largest = 0.0
    for _ in range(400):
        length = int(rng.integers(2, 30))
        p = rng.dirichlet(np.full(length, 0.2)) * rng.uniform(0, 3)
        q = rng.dirichlet(np.full(length, 0.2)) * rng.uniform(0, 3)
        chosen = place(q, 1, cost=cost)
        regret = expected_recompute(p, chosen.depths, cost=cost) - place(p, 1, cost=cost).cost
        bound = plug_in_regret(length, float(np.abs(p - q).sum()), cost=cost)
        assert regret <= 0.5 * bound + 1e-12
        largest = max(largest, regret / bound)
    assert largest > 0.05


@pytest.mark.parametrize("failure", [1e-2, 1e-4])
def test_the_confidence_of_the_estimation_error_is_needed(failure: float) -> None:
    size = 400
    drawn = np.random.default_rng(9).binomial(size, 0.5, 1_000_000)
    distances = 2.0 * np.abs(drawn / size - 0.5)
    bound = estimation_error(2, size, failure)
    expected = math.sqrt(2 / size)
    assert (distances > bound).mean() <= failure
    assert (distances > expected).mean() > failure
    assert (distances > expected + 0.3 * (bound - expected)).mean() > failure


def test_estimation_error_holds_and_is_within_a_half() -> None:
    support, size, failure = 256, 512, 0.05
    counts = np.random.default_rng(4).multinomial(size, np.full(support, 1 / support), 4_000)
    distances = np.abs(counts / size - 1 / support).sum(axis=1)
    bound = estimation_error(support, size, failure)
    assert (distances > bound).mean() <= failure
    assert (distances > bound / 1.5).mean() > failure


def decay_weights(decay: float, count: int) -> FloatArray:
    """Weights that sum to 1, the newest last."""
    weights = decay ** np.arange(count - 1, -1, -1.0)
    return weights / weights.sum()


def decayed_estimates(overlaps: NDArray[np.int64], decay: float, support: int) -> FloatArray:
    """Return the decayed distribution of each row of observations, (rows, support)."""
    rows, count = overlaps.shape
    cells = overlaps + support * np.arange(rows)[:, None]
    weights = np.broadcast_to(decay_weights(decay, count), overlaps.shape)
    sums = np.bincount(cells.ravel(), weights.ravel(), minlength=rows * support)
    return sums.reshape(rows, support)


@pytest.mark.parametrize(("decay", "count"), [(0.97, 10), (0.97, 300), (0.5, 4), (1.0, 30)])
def test_estimation_error_holds_for_decayed_observations(decay: float, count: int) -> None:
    support, failure = 12, 0.05
    overlaps = np.random.default_rng(5).integers(0, support, (4_000, count))
    estimates = decayed_estimates(overlaps, decay, support)
    distances = np.abs(estimates - 1 / support).sum(axis=1)
    bound = estimation_error(support, effective_sample_size(decay, count), failure)
    assert (distances > bound).mean() <= failure
    assert (distances > bound / 2.5).mean() > failure


@pytest.mark.parametrize("count", [1, 2, 17, 150])
@pytest.mark.parametrize("decay", [0.3, 0.9, 0.99, 1 - 1e-4, 1 - 1e-6, 1 - 1e-9, 1.0])
def test_effective_size_and_mean_age_equal_exact_sums(decay: float, count: int) -> None:
    weights = [Fraction(decay) ** age for age in range(count)]
    size = sum(weights) ** 2 / sum(weight**2 for weight in weights)
    age = sum(weight * (age + 1) for age, weight in enumerate(weights)) / sum(weights)
    assert effective_sample_size(decay, count) == pytest.approx(float(size), rel=1e-11)
    assert mean_age(decay, count) == pytest.approx(float(age), rel=1e-9)
    assert mean_age(decay, count) != pytest.approx(float(age) - 1, rel=1e-9), "age 0 is no age"


def test_a_long_history_reaches_its_limits() -> None:
    assert effective_sample_size(0.99, 10**9) == pytest.approx(199)
    assert mean_age(0.99, 10**9) == pytest.approx(100)
    assert effective_sample_size(0.99, 0) == 0.0


@pytest.mark.parametrize(
    ("support", "decay", "count"),
    [(16, 0.95, 100), (16, 0.95, 20), (16, 0.99, 100), (16, 1.0, 50), (64, 0.995, 400)],
)
def test_deviation_holds_and_is_within_a_third(support: int, decay: float, count: int) -> None:
    overlaps = np.random.default_rng(6).integers(0, support, (4_000, count))
    estimates = decayed_estimates(overlaps, decay, support)
    distance = float(np.abs(estimates - 1 / support).sum(axis=1).mean())
    error = decayed_error(support, decay, count, drift=0.0)
    assert error.bias == 0.0
    assert error.deviation / 1.35 < distance <= error.deviation


def wandering(drift: float, count: int) -> FloatArray:
    """Chance of the second of two depths at each observation, and at the one to forecast."""
    return np.arange(count + 1) * (drift / 2)


@pytest.mark.parametrize(("decay", "count"), [(0.9, 50), (0.99, 50), (1.0, 50), (0.5, 1)])
def test_bias_is_attained_by_mass_that_wanders(decay: float, count: int) -> None:
    drift = 0.02
    chances = wandering(drift, count)
    expected = float(decay_weights(decay, count) @ chances[:-1])
    bias = decayed_error(2, decay, count, drift).bias
    assert bias == pytest.approx(2 * (chances[-1] - expected), rel=1e-9)
    assert decayed_error(2, decay, count, drift=2.0).bias == 2.0


def tracking_error(decay: float, drift: float, count: int, runs: int) -> float:
    """Mean |estimate - truth|_1 after following the wandering mass."""
    chances = wandering(drift, count)
    rng = np.random.default_rng(7)
    overlaps = (rng.random((runs, count)) < chances[:-1]).astype(np.int64)
    estimates = decayed_estimates(overlaps, decay, 2)
    truth = np.array([1 - chances[-1], chances[-1]])
    return float(np.abs(estimates - truth).sum(axis=1).mean())


def test_no_error_is_larger_than_the_largest_distance() -> None:
    error = decayed_error(64, 0.5, 50, drift=1.0)
    assert error.bias + error.deviation > error.total == 2.0


@pytest.mark.parametrize("decay", [0.8, 0.95, 0.99, 0.999, 1.0])
def test_bias_and_deviation_together_hold_under_drift(decay: float) -> None:
    drift, count = 0.002, 500
    bound = decayed_error(2, decay, count, drift).total
    assert bound / 2.5 < tracking_error(decay, drift, count, runs=1_000) <= bound


@pytest.mark.parametrize(("support", "drift"), [(2, 1e-3), (64, 1e-3), (256, 1e-6), (9, 0.5)])
def test_best_decay_is_the_best_of_a_fine_grid(support: int, drift: float) -> None:
    best = best_decay(support, drift)
    uncut = [
        (drift * mean_age(g, 10**7) + decayed_error(support, g, 10**7, 0.0).deviation, g)
        for g in 1.0 - np.geomspace(1e-6, 0.999, 8_001)
    ]
    least, at = min(uncut)
    assert best.error == pytest.approx(least, rel=1e-6)
    assert 1 - best.decay == pytest.approx(1 - at, rel=0.01)
    for factor in (0.9, 1.1):
        decay = 1 - factor * (1 - best.decay)
        other = drift * mean_age(decay, 10**7) + decayed_error(support, decay, 10**7, 0.0).deviation
        assert other > best.error * (1 + 1e-6), "a tenth away must be seen"


def test_best_decay_tracks_drift_better_than_others() -> None:
    drift, count = 0.001, 1_000
    best = best_decay(2, drift)
    error = tracking_error(best.decay, drift, count, runs=400)
    assert best.error / 2.5 < error <= best.error
    for factor in (1 / 8, 8):
        decay = 1 - factor * (1 - best.decay)
        assert tracking_error(decay, drift, count, runs=400) > 1.3 * error


def test_without_drift_nothing_is_forgotten() -> None:
    assert best_decay(10, 0.0) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stability(-1, 0.1), "length: got -1; need a whole number >= 0; "),
        (lambda: stability(5, math.nan), "distance: got nan; need a finite number >= 0; "),
        (lambda: plug_in_regret(5, -0.1), "error: got -0.1; need a finite number >= 0; "),
        (lambda: estimation_error(0, 5, 0.1), "support: got 0; need a whole number >= 1; "),
        (lambda: estimation_error(5, 0, 0.1), "size: got 0; need a finite number > 0; "),
        (lambda: estimation_error(5, 5, 0.0), "failure: got 0.0; need 0 < failure <= 1; "),
        (lambda: effective_sample_size(1.1, 3), "decay: got 1.1; need 0 < decay <= 1; "),
        (lambda: effective_sample_size(0.9, -3), "count: got -3; need a whole number >= 0; "),
        (lambda: mean_age(0.9, 0), "count: got 0; need a whole number >= 1; "),
        (lambda: decayed_error(5, 0.9, 3, 2.1), "drift: got 2.1; need 0 <= drift <= 2; "),
        (lambda: decayed_error(1.5, 0.9, 3, 0.1), "support: got 1.5; need a whole number"),
        (lambda: best_decay(2, 1.5), r"drift: got 1.5; need drift < sqrt\(2\); "),
        (lambda: best_decay(2, math.nan), "drift: got nan; need 0 <= drift <= 2; "),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
