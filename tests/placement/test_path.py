"""Placement on one path against enumeration, a naive dynamic program, and what must not change."""

import itertools
import math

import numpy as np
import pytest

from tree_placement import (
    PrefillCost,
    SparseWeights,
    balanced,
    balanced_mean,
    balanced_worst,
    expected_recompute,
    place,
    place_priced,
)

CONVEX = PrefillCost(linear=1.0, quadratic=2.0)


class Case:
    """A random small problem with whole numbers, so that costs compare exactly."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.length = int(rng.integers(1, 11))
        self.weights = rng.integers(0, 4, self.length) * rng.integers(0, 2, self.length)
        self.grid = int(rng.choice([1, 1, 2, 3]))
        self.cost = CONVEX if rng.integers(2) else PrefillCost()
        depths = np.arange(1, self.length + 1)
        self.fixed = rng.permutation(depths)[: rng.choice([0, 0, 1, 2])].tolist()
        self.forbidden = rng.permutation(depths)[: rng.choice([0, 0, 1, 4])].tolist()
        self.minimum_depth = int(rng.choice([0, 0, 3]))
        self.budget = int(rng.integers(0, 5))
        self.price = float(rng.integers(0, 12))
        self.allowed = [
            depth
            for depth in range(self.grid, self.length + 1, self.grid)
            if depth not in self.forbidden and depth >= self.minimum_depth
        ]

    def keywords(self) -> dict:
        return {
            "grid": self.grid,
            "cost": self.cost,
            "fixed": self.fixed,
            "forbidden": self.forbidden,
            "minimum_depth": self.minimum_depth,
        }

    def recompute(self, new_depths: tuple[int, ...]) -> float:
        states = [0, *self.fixed, *new_depths]
        total = 0.0
        for depth, weight in enumerate(self.weights.tolist(), start=1):
            serving = max(state for state in states if state <= depth)
            alpha, beta = self.cost.linear, self.cost.quadratic
            total += weight * alpha * (depth - serving)
            total += weight * beta * (depth**2 - serving**2) / 2
        return total

    def cost_of_even_choice(self) -> float:
        count = min(self.budget, len(self.allowed))
        return self.recompute(tuple(self.allowed[:: len(self.allowed) // count] if count else ()))

    def best_by_count(self) -> list[float]:
        return [
            min(self.recompute(chosen) for chosen in itertools.combinations(self.allowed, count))
            for count in range(len(self.allowed) + 1)
        ]


def test_place_equals_enumeration(cases: int) -> None:
    constrained = told_apart = 0
    for seed in range(cases):
        case = Case(seed)
        by_count = case.best_by_count()
        placement = place(case.weights, case.budget, **case.keywords())
        assert placement.cost == min(by_count[: case.budget + 1]), seed
        assert placement.cost == case.recompute(tuple(placement.depths.tolist())), seed
        assert len(placement.depths) == by_count.index(placement.cost), seed
        assert set(placement.depths.tolist()) <= set(case.allowed) - set(case.fixed), seed
        free = place(case.weights, case.budget, cost=case.cost)
        constrained += free.cost != placement.cost
        told_apart += case.cost_of_even_choice() > placement.cost
    assert constrained > cases / 10, "the constraints must matter in many of the cases"
    assert told_apart > cases / 10, "an even choice must be told apart from the optimum"


def test_place_priced_equals_enumeration_with_fewest_states(cases: int) -> None:
    ties = 0
    for seed in range(cases):
        case = Case(seed)
        totals = [cost + case.price * m for m, cost in enumerate(case.best_by_count())]
        placement = place_priced(case.weights, case.price, **case.keywords())
        count = len(placement.depths)
        assert placement.cost + case.price * count == min(totals), seed
        assert count == totals.index(min(totals)), seed
        assert placement.cost == case.recompute(tuple(placement.depths.tolist())), seed
        ties += totals.count(min(totals)) > 1
    assert ties > cases / 30, "ties must occur"


def naive_best_cost(weights: np.ndarray, budget: int, cost: PrefillCost) -> float:
    """O(N^2 M): the recurrence as it is written, with every split tried."""
    length = len(weights)
    prefill = np.array([float(cost(depth)) for depth in range(length + 2)])
    mass = np.concatenate(([0.0, 0.0], np.cumsum(weights)))
    moment = np.concatenate(([0.0, 0.0], np.cumsum(weights * prefill[1:-1])))
    best = moment - prefill[0] * mass
    for _ in range(budget):
        following = best.copy()
        for end in range(1, length + 2):
            starts = np.arange(1, end)
            served = moment[end] - moment[starts] - prefill[starts] * (mass[end] - mass[starts])
            following[end] = min(best[end], np.min(best[starts] + served, initial=math.inf))
        best = following
    return float(best[-1])


@pytest.mark.parametrize("cost", [PrefillCost(), PrefillCost(linear=0.3, quadratic=0.01)])
@pytest.mark.parametrize(("length", "budget"), [(500, 1), (500, 7), (2_000, 5)])
def test_place_equals_naive_program_on_a_longer_path(
    cost: PrefillCost, length: int, budget: int
) -> None:
    weights = np.random.default_rng(budget).exponential(size=length) ** 3
    truth = naive_best_cost(weights, budget, cost)
    assert place(weights, budget, cost=cost).cost == pytest.approx(truth, rel=1e-10)
    even = expected_recompute(weights, balanced(length, budget), cost=cost)
    assert even > truth * 1.001, "even gaps must be told apart from the optimum"


def test_cost_of_a_hand_worked_placement() -> None:
    assert expected_recompute([1, 2, 0, 4], [2]) == 1 * 1 + 0 + 4 * 2
    assert expected_recompute([1, 2, 0, 4], [2], cost=CONVEX) == 2 + 0 + 4 * (20 - 6)
    assert expected_recompute(SparseWeights([5], [0.5]), [9, 3]) == 1.0


def test_whole_weights_equal_repeated_samples() -> None:
    samples = np.random.default_rng(4).integers(1, 200, 900)
    depths, counts = np.unique(samples, return_counts=True)
    placement = place(SparseWeights(depths, counts), 6)
    states = np.append(0, placement.depths)
    gaps = samples - states[np.searchsorted(states, samples, side="right") - 1]
    assert placement.cost == gaps.sum()
    assert place(np.bincount(samples, minlength=201)[1:], 6).cost == placement.cost


def test_scaling_weights_scales_the_cost_only() -> None:
    weights = np.random.default_rng(1).integers(0, 9, 300)
    once, eightfold = place(weights, 5), place(8 * weights, 5)
    assert once.depths.tolist() == eightfold.depths.tolist()
    assert eightfold.cost == 8 * once.cost


def test_stretching_the_path_stretches_the_placement() -> None:
    weights = np.random.default_rng(2).integers(0, 9, 100)
    stretched = SparseWeights(64 * np.arange(1, 101), weights)
    once, longer = place(weights, 6), place(stretched, 6, grid=64)
    assert (64 * once.depths).tolist() == longer.depths.tolist()
    assert longer.cost == 64 * once.cost


@pytest.mark.parametrize("grid", [1, 7, 64])
def test_sparse_weights_equal_dense_ones(grid: int) -> None:
    rng = np.random.default_rng(grid)
    dense = np.zeros(5_000)
    depths = np.sort(rng.choice(5_000, 60, replace=False))
    dense[depths] = rng.integers(1, 9, 60)
    sparse = SparseWeights(depths + 1, dense[depths])
    for budget in (0, 1, 5, 80):
        by_dense, by_sparse = place(dense, budget, grid=grid), place(sparse, budget, grid=grid)
        assert by_dense.depths.tolist() == by_sparse.depths.tolist()
        assert by_dense.cost == by_sparse.cost
    priced = place_priced(sparse, 500.0, grid=grid)
    assert priced.depths.tolist() == place_priced(dense, 500.0, grid=grid).depths.tolist()


@pytest.mark.parametrize("cost", [PrefillCost(), CONVEX])
def test_cost_is_convex_in_the_budget_and_prices_find_every_budget(cost: PrefillCost) -> None:
    weights = np.random.default_rng(3).integers(0, 50, 60)
    keywords = {"cost": cost, "fixed": [20], "forbidden": [21, 22, 40]}
    costs = [place(weights, budget, **keywords).cost for budget in range(30)]
    savings = -np.diff(costs)
    assert np.all(savings >= 0)
    assert np.all(np.diff(savings) <= 0)
    for budget in range(1, 29):
        price = (savings[budget - 1] + savings[budget]) / 2
        priced = place_priced(weights, price, **keywords)
        assert priced.cost + price * len(priced.depths) == costs[budget] + price * budget
        if savings[budget - 1] > savings[budget]:
            assert (len(priced.depths), priced.cost) == (budget, costs[budget])


def test_fixed_states_take_no_budget_and_are_not_returned() -> None:
    weights = [0, 0, 0, 5, 0, 0, 0, 9]
    assert place(weights, 1).depths.tolist() == [8]
    assert place(weights, 1, fixed=[8]).depths.tolist() == [4]
    assert place(weights, 3, fixed=[4, 8]).depths.tolist() == []
    assert place(weights, 3, fixed=[4, 8]).cost == 0


def test_paths_without_a_place_for_a_state() -> None:
    assert place([], 3).depths.dtype == np.int64
    assert place([0, 0], 3).cost == 0
    assert place(SparseWeights([], []), 1).depths.tolist() == []
    assert place_priced([0, 0, 1], 0.0, grid=4).depths.tolist() == []
    assert place([1, 1, 1], 2, minimum_depth=4).cost == 6


@pytest.mark.parametrize("grid", [1, 3, 4])
@pytest.mark.parametrize("length", [1, 5, 12, 23])
def test_balanced_is_optimal_for_uniform_weights_and_for_the_worst_overlap(
    length: int, grid: int
) -> None:
    for budget in range(7):
        depths = balanced(length, budget, grid=grid)
        uniform = np.ones(length)
        cost = expected_recompute(uniform, depths)
        assert cost == place(uniform, budget, grid=grid).cost
        assert balanced_mean(length, budget, grid=grid) == pytest.approx(cost / length)
        worst = worst_recompute(length, depths.tolist())
        assert balanced_worst(length, budget, grid=grid) == worst
        sites = range(grid, length + 1, grid)
        count = min(budget, len(sites))
        choices = itertools.islice(itertools.combinations(sites, count), 3_000)
        assert worst <= min(worst_recompute(length, list(choice)) for choice in choices)
        steps = np.diff(np.concatenate(([0], depths)))
        assert np.ptp(steps) <= grid if steps.size else True


def worst_recompute(length: int, depths: list[int]) -> int:
    states = [0, *depths]
    return max(
        depth - max(state for state in states if state <= depth) for depth in range(1, length + 1)
    )


def test_closed_forms_on_a_grid_of_one() -> None:
    for length, budget in itertools.product((1, 10, 1_000, 12_345), (0, 1, 7, 100)):
        worst = math.ceil((length + 1) / (min(budget, length) + 1)) - 1
        assert balanced_worst(length, budget) == worst
        assert abs(balanced_mean(length, budget) - length / (2 * (budget + 1))) <= 1
    assert balanced_worst(0, 3) == 0


def test_sparse_weights_are_copies_that_cannot_be_written_to() -> None:
    depths, weights = np.array([2, 5]), np.array([1.0, 3.0])
    sparse = SparseWeights(depths, weights)
    depths[0], weights[0] = 4, 9.0
    assert (sparse.depths.tolist(), sparse.weights.tolist()) == ([2, 5], [1.0, 3.0])
    for array in (sparse.depths, sparse.weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("solve", [place, place_priced])
@pytest.mark.parametrize(
    ("weights", "cost"),
    [
        ([1e308, 1e308], None),
        (np.ones(1_000), PrefillCost(1.0, 1e306)),
        (SparseWeights([1, 2**40], [1e290, 1.0]), None),
    ],
)
def test_sums_that_overflow_are_refused_without_a_warning(solve, weights, cost, recwarn) -> None:
    with pytest.raises(ValueError, match=r"^weights: got a sum of .*; need finite sums; scale "):
        solve(weights, 1, cost=cost)
    assert not list(recwarn)


def test_large_weights_that_do_not_overflow_are_solved() -> None:
    weights = np.random.default_rng(6).integers(0, 9, 50)
    assert place(weights * 2.0**900, 3).depths.tolist() == place(weights, 3).depths.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: place([1, -1], 1), r"weights\[1\]: got -1.0; need a finite number >= 0; "),
        (lambda: place([math.nan], 1), r"weights\[0\]: got nan; need "),
        (lambda: place([1, math.inf], 1), r"weights\[1\]: got inf; need "),
        (lambda: place([[1.0]], 1), r"weights: got shape \(1, 1\); need one dimension; "),
        (lambda: place(["a"], 1), r"weights: got dtype <U1; need real numbers; "),
        (lambda: place([[1, 2], [3]], 1), r"weights: got rows of different sizes; need one dim"),
        (lambda: place([1j], 1), r"weights: got dtype complex128; need real numbers; "),
        (lambda: place([None], 1), r"weights: got dtype object; need real numbers; "),
        (lambda: SparseWeights([1], [None]), r"weights: got dtype object; need real numbers; "),
        (lambda: SparseWeights([2**53 + 1], [1]), r"depths: got 9007199254740993; need at most 9"),
        (lambda: SparseWeights([2**63], [1]), r"depths: got 9223372036854775808; need at most 9"),
        (lambda: expected_recompute([1e308, 1e308], []), r"weights: got a sum of inf with F = 2 "),
        (lambda: place([1], 1, grid=2.0), r"grid: got 2.0; need a whole number >= 1, an int; "),
        (lambda: place([1], 1.0), r"budget: got 1.0; need a whole number >= 0, an int; "),
        (lambda: place([1], 1, grid="2"), r"grid: got '2'; need a whole number >= 1, an int; "),
        (lambda: place([1], -1), r"budget: got -1; need a whole number >= 0; "),
        (lambda: place([1], 1, grid=0), r"grid: got 0; need a whole number >= 1; "),
        (lambda: place([1], 1, fixed=[2]), r"fixed: got 2; need 1 <= depth <= 1; "),
        (lambda: place([1], 1, fixed=[0.5]), r"fixed: got dtype float64; need whole numbers"),
        (lambda: place([1], 1, forbidden=[0]), r"forbidden: got 0; need 1 <= depth <= 1; "),
        (lambda: place([1], 1, minimum_depth=-2), r"minimum_depth: got -2; need "),
        (lambda: place_priced([1], -0.5), r"price: got -0.5; need a finite number >= 0; "),
        (lambda: place_priced([1], math.nan), r"price: got nan; need "),
        (lambda: SparseWeights([2, 2], [1, 1]), r"depths: got .*; need strictly rising"),
        (lambda: SparseWeights([0], [1]), r"depths: got .*; need strictly rising"),
        (lambda: SparseWeights([1, 2], [1]), r"weights: got 1 for 2 depths; need "),
        (lambda: place(SparseWeights([3], [1]), 1, fixed=[0]), r"fixed: got 0; need depth >= 1"),
        (lambda: expected_recompute([1], [2]), r"depths: got 2; need 1 <= depth <= 1; "),
        (lambda: PrefillCost(linear=-1.0), r"linear: got -1.0; need "),
        (lambda: PrefillCost(linear=0.0), r"linear and quadratic: got 0 and 0; need "),
        (lambda: balanced(-1, 1), r"length: got -1; need a whole number >= 0; "),
        (lambda: balanced_mean(0, 1), r"length: got 0; need a whole number >= 1; "),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
