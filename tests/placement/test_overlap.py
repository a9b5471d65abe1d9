"""Overlap statistics against plain sums over the whole history, and on overlaps of known origin."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from tree_placement import (
    OverlapHistogram,
    OverlapModel,
    OverlapStatistics,
    SparseWeights,
    expected_recompute,
    place,
)

SYSTEM_PROMPT, BEFORE_END, TOLERANCE = 1_500, 900, 128


def mixed_overlaps(seed: int, documents: int = 19) -> list[tuple[int, int]]:
    """Overlaps with documents of many lengths: half near 1,500, half near 900 from the end."""
    rng = np.random.default_rng(seed)
    observations = []
    for length in rng.integers(4_000, 9_001, documents).tolist():
        for from_start in rng.permutation([True] * 4 + [False] * 4).tolist():
            center = SYSTEM_PROMPT if from_start else length - BEFORE_END
            observations.append((center + round(rng.normal(0, 30)), length))
    return observations


def new_length(seed: int) -> int:
    return int(np.random.default_rng([seed, 1]).integers(4_000, 9_001))


def mass_within(depths: np.ndarray, weights: np.ndarray, center: int) -> float:
    near = np.abs(depths - center) <= TOLERANCE
    return float(weights[near].sum() / weights.sum())


@pytest.mark.parametrize("seed", range(20))
def test_both_modes_are_sharp_on_a_document_of_new_length(seed: int) -> None:
    model = OverlapModel()
    for overlap, earlier_length in mixed_overlaps(seed):
        model.observe([], overlap, earlier_length)
    length = new_length(seed)
    forecast = model.forecast([], length)
    at_start = mass_within(forecast.depths, forecast.weights, SYSTEM_PROMPT)
    at_end = mass_within(forecast.depths, forecast.weights, length - BEFORE_END)
    assert at_start + at_end >= 0.9
    assert min(at_start, at_end) >= 0.4
    placement = place(forecast, 2, grid=64)
    assert abs(placement.depths[0] - SYSTEM_PROMPT) <= TOLERANCE + 64
    assert abs(placement.depths[1] - (length - BEFORE_END)) <= TOLERANCE + 64


@pytest.mark.parametrize("seed", range(20))
def test_one_pooled_histogram_of_depths_smears_the_end(seed: int) -> None:
    pooled = OverlapHistogram()
    for overlap, _ in mixed_overlaps(seed):
        pooled.observe(overlap)
    depths, _, weights = pooled.bins()
    length = new_length(seed)
    at_start = mass_within(depths, weights, SYSTEM_PROMPT)
    at_end = mass_within(depths, weights, length - BEFORE_END)
    assert at_start + at_end < 0.9
    assert at_end < 0.3


@pytest.mark.parametrize("deviation", [0, 5, 15])
def test_states_placed_by_forecast_serve_overlaps_yet_to_come(deviation: int) -> None:
    rng = np.random.default_rng(deviation)
    model, distances = OverlapModel(), OverlapHistogram()
    for length in rng.integers(4_000, 9_001, 30).tolist():
        for _ in range(8):
            distance = BEFORE_END + round(rng.normal(0, deviation))
            model.observe([], length - distance, length)
            distances.observe(distance)
    means, _, masses = distances.bins()
    order = np.argsort(-means)
    noise = np.rint(rng.normal(0, deviation, 2_000)).astype(int)
    realised, at_means, optimal = 0.0, 0.0, 0.0
    for length in range(5_000, 5_064, 2):
        weights = np.bincount(length - BEFORE_END + noise, minlength=length + 1)[1:] / 2_000
        optimal += place(weights, 1, grid=64).cost
        forecast = model.forecast([], length)
        realised += expected_recompute(weights, place(forecast, 1, grid=64).depths)
        at_mean = SparseWeights(length - np.rint(means[order]).astype(int), masses[order])
        at_means += expected_recompute(weights, place(at_mean, 1, grid=64).depths)
    assert realised <= 1.15 * optimal
    if deviation:
        assert at_means > 1.3 * optimal, "bins that stand at their means must be told apart"


@pytest.mark.parametrize(("seed", "from_start"), [(0, True), (1, False)])
def test_a_single_mode_moves_to_its_own_coordinate(seed: int, from_start: bool) -> None:
    rng = np.random.default_rng(seed)
    statistics = OverlapStatistics()
    for length in rng.integers(4_000, 9_001, 40).tolist():
        statistics.observe(SYSTEM_PROMPT if from_start else length - BEFORE_END, length)
    own, other = statistics.start.total, statistics.end.total
    if not from_start:
        own, other = other, own
    assert own > 0.97 * (own + other)


def test_one_length_alone_cannot_tell_the_coordinates_apart() -> None:
    statistics = OverlapStatistics()
    responsibilities = {statistics.observe(2_000, 5_000) for _ in range(50)}
    assert responsibilities == {0.5}


def test_a_scope_without_evidence_asks_the_wider_one() -> None:
    model = OverlapModel()
    rng = np.random.default_rng(5)
    for length in rng.integers(4_000, 9_001, 30).tolist():
        model.observe([], length - BEFORE_END, length)
    for _ in range(10):
        model.observe([1], 5_000 - BEFORE_END, 5_000)
    forecast = model.forecast([1], 8_000)
    assert mass_within(forecast.depths, forecast.weights, 8_000 - BEFORE_END) > 0.9
    alone = OverlapModel()
    for _ in range(10):
        alone.observe([1], 5_000 - BEFORE_END, 5_000)
    forecast = alone.forecast([1], 8_000)
    assert mass_within(forecast.depths, forecast.weights, 8_000 - BEFORE_END) < 0.6


@pytest.mark.parametrize(("decay", "count"), [(0.99, 400), (0.5, 900), (1.0, 50)])
def test_histogram_equals_sums_over_the_history(decay: float, count: int) -> None:
    rng = np.random.default_rng(count)
    tokens = rng.integers(0, 700, count)
    weights = rng.uniform(0.0, 2.0, count) * rng.integers(0, 2, count)
    histogram = OverlapHistogram(decay, bin=64)
    for depth, weight in zip(tokens.tolist(), weights.tolist(), strict=True):
        histogram.observe(depth, weight)
    aged = weights * decay ** np.arange(count - 1, -1, -1.0)
    assert histogram.total == pytest.approx(aged.sum(), rel=1e-9)
    size = aged.sum() ** 2 / (aged**2).sum()
    assert histogram.effective_size == pytest.approx(size, rel=1e-9)
    near = aged[(tokens // 64 >= 2) & (tokens // 64 <= 4)].sum()
    assert histogram.mass_near(200) == pytest.approx(near, rel=1e-9)
    bins = histogram.bins()
    for mean, variance, mass in zip(*bins, strict=True):
        in_bin = tokens // 64 == mean // 64
        assert mass == pytest.approx(aged[in_bin].sum(), rel=1e-9)
        assert mean == pytest.approx(np.average(tokens[in_bin], weights=aged[in_bin]), rel=1e-9)
        deviations = tokens[in_bin] - mean
        truth = np.average(deviations**2, weights=aged[in_bin])
        assert variance == pytest.approx(truth, rel=1e-6, abs=1e-9)
    assert bins.masses.sum() == pytest.approx(aged.sum(), rel=1e-4)


def exact_masses(tokens: list[int], decay: float, youngest_age: int = 0) -> Counter[int]:
    """Sum decay^age over the observations in each bin of 64 tokens, without any rounding."""
    factor, weight = Fraction(decay), Fraction(decay) ** youngest_age
    masses: Counter[int] = Counter()
    for token in reversed(tokens):
        masses[token // 64] += weight
        weight *= factor
    return masses


def exact_effective_size(decay: float, count: int) -> float:
    g = Fraction(decay)
    return float((1 + g) * (1 - g**count) / ((1 - g) * (1 + g**count)))


@pytest.mark.parametrize(("decay", "count"), [(0.99, 1), (0.99, 150), (0.5, 700), (0.9, 300)])
def test_histogram_is_the_exact_decayed_estimator(decay: float, count: int) -> None:
    tokens = np.random.default_rng(count).integers(0, 500, count).tolist()
    histogram, model = OverlapHistogram(decay), OverlapModel(decay)
    for token in tokens:
        histogram.observe(token)
        model.observe([4], token + 1, 600)
    total = float(sum(exact_masses(tokens, decay).values()))
    size = exact_effective_size(decay, count)
    for number, mass in exact_masses(tokens, decay).items():
        alone = OverlapHistogram(decay)
        for token in tokens:
            alone.observe(token, float(token // 64 == number))
        assert alone.total == pytest.approx(float(mass), rel=1e-12)
    assert histogram.total == pytest.approx(total, rel=1e-12)
    assert histogram.effective_size == pytest.approx(size, rel=1e-12)
    assert model.tree.total == pytest.approx(total, rel=1e-12)
    assert model.tree.effective_size == pytest.approx(size, rel=1e-12)
    both = model.tree.start.total + model.tree.end.total
    assert both == pytest.approx(total, rel=1e-12), "the coordinates share each observation"
    older = float(sum(exact_masses(tokens, decay, youngest_age=1).values()))
    assert histogram.total != pytest.approx(older, rel=1e-12), "an age too many must be seen"
    if count > 1:
        other = exact_effective_size(decay + 1e-6, count)
        assert histogram.effective_size != pytest.approx(other, rel=1e-12)


def test_histogram_keeps_the_heaviest_bins() -> None:
    histogram = OverlapHistogram(decay=1.0, bin=10, maximum_bins=3)
    for depth, weight in [(5, 4.0), (15, 1.0), (25, 3.0), (35, 2.0), (45, 0.5)]:
        histogram.observe(depth, weight)
    means, _, masses = histogram.bins()
    assert sorted(zip(means.tolist(), masses.tolist(), strict=True)) == [(5, 4), (25, 3), (35, 2)]
    assert (len(histogram), histogram.total) == (3, 9.0)
    assert histogram.effective_size == pytest.approx(81 / 29)


def test_memory_stays_bounded_over_a_long_history() -> None:
    histogram = OverlapHistogram(decay=0.9, bin=1, maximum_bins=50)
    for depth in np.random.default_rng(0).integers(0, 10**6, 5_000).tolist():
        histogram.observe(depth)
    assert len(histogram) <= 50
    assert histogram.total == pytest.approx(10.0, rel=0.01)


def test_forecast_follows_the_shrinkage_rule() -> None:
    model = OverlapModel(decay=1.0)
    for length in (4_100, 5_100, 6_100, 7_100):
        model.observe([], 1_000, length)
    for _ in range(8):
        model.observe([3], 3_000, 6_000)
    tree, scope = 12 / (12 + 1), 8 / (8 + 8)
    forecast = model.forecast([3], 6_000)
    weight = dict(zip(forecast.depths.tolist(), forecast.weights.tolist(), strict=True))
    assert sum(weight.values()) == pytest.approx(1.0)
    assert weight[3_000] == pytest.approx(scope + (1 - scope) * tree * 8 / 12, abs=1e-3)
    at_thousand = (1 - scope) * tree * model.tree.start.mass_near(1_000) / 12
    assert weight[1_000] == pytest.approx(at_thousand, abs=1e-3)
    unknown = model.forecast([99], 6_000)
    assert unknown.weights.tolist() == model.forecast([], 6_000).weights.tolist()


def test_evidence_off_the_path_gives_way_to_the_prior() -> None:
    model = OverlapModel(decay=1.0)
    for length in (8_000, 9_000, 10_000):
        model.observe([1], 7_000, length)
    forecast = model.forecast([1], 900)
    assert forecast.depths[-1] <= 900
    assert forecast.weights.sum() == pytest.approx(1.0)
    empty = OverlapModel().forecast([], 900)
    assert np.abs(forecast.weights - empty.weights).max() < 0.01


def test_evidence_counts_by_its_share_on_the_path() -> None:
    """Of ten observations one lies on the path, and only its part from the start."""
    model = OverlapModel(decay=1.0, prior_size=1.0)
    model.observe([], 300, 10_000)
    for _ in range(9):
        model.observe([], 7_000, 9_000)
    mass = model.tree.start.mass_near(300)
    assert 0.4 < mass <= 1.0
    forecast = model.forecast([], 900)
    weight = float(forecast.weights[forecast.depths == 300].sum())
    assert weight == pytest.approx(mass / (mass + 1.0), abs=0.01)
    assert weight < 10 / (10 + 1) - 0.1, "all ten must be told apart"


@pytest.mark.parametrize("length", [1, 63, 64, 1_000_000])
def test_forecast_without_evidence_is_uniform(length: int) -> None:
    forecast = OverlapModel().forecast([], length)
    assert isinstance(forecast, SparseWeights)
    assert forecast.depths[0] >= 1
    assert forecast.depths[-1] <= length
    assert np.ptp(forecast.weights) < 1e-12
    mean = float(np.dot(forecast.depths, forecast.weights))
    assert mean == pytest.approx((length + 1) / 2, abs=1)


def test_oldest_scopes_are_forgotten_first() -> None:
    model = OverlapModel(maximum_scopes=2)
    for scope in (1, 2, 1, 3):
        model.observe([scope], 100, 200)
    assert (1 in model, 2 in model, 3 in model, len(model)) == (True, False, True, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OverlapModel(decay=0.0), "decay: got 0.0; need 0 < decay <= 1; "),
        (lambda: OverlapModel(bin=0), "bin: got 0; need a whole number >= 1; "),
        (lambda: OverlapModel(maximum_scopes=0), "maximum_scopes: got 0; need "),
        (lambda: OverlapModel(maximum_bins=0), "maximum_bins: got 0; need "),
        (lambda: OverlapModel(scope_bins=0), "scope_bins: got 0; need "),
        (lambda: OverlapModel(shrinkage=0.0), "shrinkage: got 0.0; need a finite number > 0; "),
        (lambda: OverlapModel(prior_size=-1.0), "prior_size: got -1.0; need "),
        (lambda: OverlapModel().observe([], 0, 5), "overlap: got 0; need a whole number >= 1; "),
        (lambda: OverlapModel().observe([], 5, 0), "earlier_length: got 0; need "),
        (lambda: OverlapModel().forecast([], 0), "length: got 0; need "),
        (lambda: OverlapStatistics().observe(5, 9, 1.5), "prior: got 1.5; need 0 <= prior <= 1; "),
        (lambda: OverlapHistogram().observe(-1), "tokens: got -1; need "),
        (lambda: OverlapHistogram().observe(1, float("nan")), "weight: got nan; need "),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
