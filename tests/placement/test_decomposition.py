"""Stars and combs solved apart, and the bound from prices, against enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from brute_force import TreeCase

from tree_placement.tree.branches import decompose
from tree_placement.tree.decomposition import decomposition_gap, place_apart, split_budget
from tree_placement.tree.duality import duality_gap, price_bound
from tree_placement.tree.exact import place_tree, tree_cost_curve
from tree_placement.tree.prefix_tree import PrefixTree, State, tree_recompute
from tree_placement.tree.priced import place_tree_priced

TWO_BRANCHES = PrefixTree([-1, 0, 1, 2, 3, 2, 5], [0, 4, 6, 1, 9, 1, 9], [0, 9, 0, 3, 2, 3, 2])
NOT_CONVEX = PrefixTree([-1, 0, 1, 1, 1], [0, 4, 2, 3, 8], [0, 1, 9, 9, 5])


def branched_cases(count: int, *, with_junction_states: bool = False) -> Iterator[TreeCase]:
    """Yield random stars and combs, at most nine places on them for a new state."""
    for seed in itertools.count():
        case = TreeCase(seed)
        try:
            branches = decompose(case.tree())
        except ValueError:
            continue
        if len(branches) == 1:
            continue
        if with_junction_states:
            junctions = {branch.junction for branch in branches[1:]} - {0}
            case.fixed = list({*case.fixed, *((node, case.lengths[node]) for node in junctions)})
        case.allowed = [place for place in case.allowed if place not in case.fixed]
        if len(case.allowed) > 9:
            continue
        yield case
        count -= 1
        if not count:
            return


def enumerated(case: TreeCase, budgets: list[int]) -> float:
    """Return the least cost of at most so many new states on each branch, all tried."""
    branches = [set(branch.nodes.tolist()) for branch in decompose(case.tree())]
    choices = [
        [
            chosen
            for count in range(budget + 1)
            for chosen in itertools.combinations([p for p in case.allowed if p[0] in nodes], count)
        ]
        for budget, nodes in zip(budgets, branches, strict=True)
    ]
    return min(case.recompute(sum(states, ())) for states in itertools.product(*choices))


def test_branches_cover_the_tree_and_are_paths() -> None:
    for case in branched_cases(200):
        tree = case.tree()
        branches = decompose(tree)
        covered = np.concatenate([branch.nodes for branch in branches])
        assert sorted(covered.tolist()) == list(range(1, len(tree)))
        for branch in branches:
            path = [branch.junction, *branch.nodes.tolist()]
            assert tree.parents[path[1:]].tolist() == path[:-1]


def test_a_general_tree_is_refused() -> None:
    tree = PrefixTree([-1, 0, 1, 1, 0, 4, 4], [0] + [1] * 6, [1] * 7)
    for solve in (decompose, lambda tree: split_budget(tree, 1)):
        with pytest.raises(ValueError, match="general tree; need a chain, a star or a comb"):
            solve(tree)


def test_two_branches_solved_apart_cost_42_and_together_36() -> None:
    apart = place_apart(TWO_BRANCHES, [1, 1, 1])
    assert apart.counts == (1, 1, 1)
    assert apart.placement.cost == 42.0
    assert not apart.is_certified
    places = [
        [
            (node, depth)
            for node in branch.nodes.tolist()
            for depth in range(1, int(TWO_BRANCHES.lengths[node]) + 1)
        ]
        for branch in decompose(TWO_BRANCHES)
    ]
    together = min(tree_recompute(TWO_BRANCHES, states) for states in itertools.product(*places))
    assert together == 36.0
    assert place_tree(TWO_BRANCHES, 3).cost == 26.0, "one budget may leave a branch without"
    assert apart.lower_bound == 6.0


def test_solved_apart_is_optimal_under_own_budgets_where_certified() -> None:
    rng = np.random.default_rng(0)
    certified = understated = 0
    for case in branched_cases(400):
        tree = case.tree()
        budgets = rng.integers(0, 3, len(decompose(tree))).tolist()
        apart = place_apart(tree, budgets, **case.keywords())
        optimum = enumerated(case, budgets)
        assert apart.lower_bound <= optimum <= apart.placement.cost
        assert apart.placement.cost == case.recompute(apart.placement.states)
        assert all(count <= budget for count, budget in zip(apart.counts, budgets, strict=True))
        if apart.is_certified:
            certified += 1
            assert apart.lower_bound == apart.placement.cost == optimum
        understated += optimum < apart.placement.cost
    assert certified > 50
    assert understated > 10, "without a state at the junction some optimum must be missed"


def test_states_at_all_junctions_make_the_branches_independent() -> None:
    rng = np.random.default_rng(1)
    for case in branched_cases(200, with_junction_states=True):
        tree = case.tree()
        budgets = rng.integers(0, 3, len(decompose(tree))).tolist()
        apart = place_apart(tree, budgets, **case.keywords())
        assert apart.is_certified
        assert apart.gap == 0.0
        assert apart.placement.cost == enumerated(case, budgets)
        split = split_budget(tree, case.budget, **case.keywords())
        by_count = case.best_by_count()
        assert split.placement.cost == min(by_count[: case.budget + 1])
        assert len(split.placement.states) == by_count.index(split.placement.cost)
        assert duality_gap(tree, case.budget, **case.keywords()) == pytest.approx(0.0, abs=1e-9)
        assert (np.diff(tree_cost_curve(tree, 6, **case.keywords()), 2) >= 0.0).all()


def test_no_weight_above_the_first_states_is_enough() -> None:
    weights = TWO_BRANCHES.weights.copy()
    weights[[3, 5]] = 0.0
    tree = PrefixTree(TWO_BRANCHES.parents, TWO_BRANCHES.lengths, weights)
    apart = place_apart(tree, [1, 1, 1])
    assert apart.is_certified
    assert apart.placement.cost == apart.lower_bound == 0.0
    assert not place_apart(tree, [1, 1, 0]).is_certified
    assert place_apart(tree, [1, 1, 0], fixed=[(2, 6)]).is_certified
    assert not place_apart(tree, [1, 1, 0], fixed=[(2, 5)]).is_certified


def test_a_new_state_at_the_junction_is_enough() -> None:
    weights = TWO_BRANCHES.weights.copy()
    weights[2] = 5.0
    tree = PrefixTree(TWO_BRANCHES.parents, TWO_BRANCHES.lengths, weights)
    apart = place_apart(tree, [2, 1, 1])
    assert (2, 6) in apart.placement.states
    assert apart.is_certified
    assert apart.placement.cost == apart.lower_bound == 6.0
    assert not place_apart(tree, [1, 1, 1]).is_certified


def test_one_budget_split_is_an_upper_bound_with_its_gap() -> None:
    missed = 0
    for case in branched_cases(400):
        tree = case.tree()
        split = split_budget(tree, case.budget, **case.keywords())
        optimum = min(case.best_by_count()[: case.budget + 1])
        assert len(split.placement.states) == sum(split.counts) <= case.budget
        assert split.lower_bound <= optimum <= split.placement.cost
        assert decomposition_gap(tree, case.budget, **case.keywords()) == (
            split.placement.cost - optimum
        )
        assert split.gap >= split.placement.cost - optimum
        if split.is_certified:
            assert split.placement.cost == optimum
        missed += split.placement.cost > optimum
    assert missed > 10, "the upper bound must be told apart from the optimum"


def test_a_budget_is_split_where_each_state_saves_most() -> None:
    """Chains from the root are independent, so the exact solver agrees at every budget."""
    rng = np.random.default_rng(2)
    parents = [-1] + [0 if node % 10 == 1 else node - 1 for node in range(1, 121)]
    tree = PrefixTree(parents, [0, *rng.integers(1, 50, 120)], [0, *rng.integers(0, 9, 120)])
    curve = tree_cost_curve(tree, 30)
    for budget in (0, 1, 12, 13, 30):
        split = split_budget(tree, budget)
        assert split.is_certified
        assert split.placement.cost == curve[budget]
        if budget >= 12:
            even = place_apart(tree, [0] + [budget // 12] * 12)
            assert even.placement.cost > curve[budget], "an even split must be told apart"


def test_four_leaves_of_which_no_price_finds_two() -> None:
    assert tree_cost_curve(NOT_CONVEX, 4).tolist() == [181.0, 85.0, 45.0, 4.0, 0.0]
    assert [duality_gap(NOT_CONVEX, budget) for budget in range(5)] == [0.0, 0.0, 0.5, 0.0, 0.0]
    assert price_bound(NOT_CONVEX, 2) == (44.5, 40.5)
    counts = {len(place_tree_priced(NOT_CONVEX, price / 8).states) for price in range(800)}
    assert counts == {0, 1, 3, 4}


def hull_at(costs: list[float], budget: int) -> float:
    """Return the lower convex hull of the costs of 0, 1, ... states: the lowest of all chords."""
    best = min(costs[: budget + 1])
    for few, many in itertools.combinations(range(len(costs)), 2):
        if few <= budget <= many:
            share = (budget - few) / (many - few)
            best = min(best, costs[few] + share * (costs[many] - costs[few]))
    return best


def test_price_bound_is_the_lower_hull_of_the_optimal_costs(cases: int) -> None:
    for seed in range(cases):
        case = TreeCase(seed)
        costs = case.best_by_count()
        bound = price_bound(case.tree(), case.budget, **case.keywords())
        assert bound.value == pytest.approx(hull_at(costs, case.budget), abs=1e-9), seed
        gap = duality_gap(case.tree(), case.budget, **case.keywords())
        optimum = min(costs[: case.budget + 1])
        assert gap == pytest.approx(optimum - bound.value, abs=1e-9), seed
        priced = place_tree_priced(case.tree(), bound.price, **case.keywords())
        reached = priced.cost + bound.price * (len(priced.states) - case.budget)
        assert reached == pytest.approx(bound.value, abs=1e-9), seed


def test_gap_is_positive_exactly_where_the_costs_lie_above_their_hull() -> None:
    rng = np.random.default_rng(4)
    positive = 0
    for _ in range(300):
        lengths, weights = [0, 4, *rng.integers(1, 9, 3)], [0, 1, *rng.integers(4, 10, 3)]
        tree = PrefixTree([-1, 0, 1, 1, 1], lengths, weights)
        ends = [(node, int(tree.lengths[node])) for node in range(1, 5)]
        costs = [
            min(tree_recompute(tree, states) for states in itertools.combinations(ends, count))
            for count in range(5)
        ]
        for budget in range(5):
            gap = duality_gap(tree, budget)
            assert gap == pytest.approx(costs[budget] - hull_at(costs, budget), abs=1e-9)
            positive += gap > 0.1
    assert positive > 10


def test_price_bound_on_a_larger_tree() -> None:
    rng = np.random.default_rng(3)
    parents = [-1] + [int(rng.integers(max(0, node - 9), node)) for node in range(1, 300)]
    tree = PrefixTree(parents, [0, *rng.integers(1, 50, 299)], [0, *rng.integers(0, 9, 299)])
    curve = tree_cost_curve(tree, 300).tolist()
    for budget in (0, 1, 5, 40, 299, 300):
        bound = price_bound(tree, budget)
        assert bound.value == pytest.approx(hull_at(curve, budget), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split_budget(NOT_CONVEX, -1), "budget: got -1; need a whole number >= 0"),
        (lambda: price_bound(NOT_CONVEX, -1), "budget: got -1; need a whole number >= 0"),
        (lambda: duality_gap(NOT_CONVEX, 0.5), "budget: got 0.5; need a whole number >= 0"),
        (lambda: place_apart(NOT_CONVEX, [1]), "budgets: got 1 of them; need 4, one a branch"),
        (lambda: place_apart(NOT_CONVEX, [0, 0, -1, 0]), "budget: got -1; need a whole number"),
        (lambda: split_budget(NOT_CONVEX, 1, fixed=[(9, 1)]), r"fixed: got \(9, 1\)"),
    ],
)
def test_bad_input_is_one_clear_line(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_tree_of_one_node_has_an_empty_spine() -> None:
    tree = PrefixTree([-1], [0], [5])
    split = split_budget(tree, 3)
    states: tuple[State, ...] = ()
    assert (split.placement.states, split.placement.cost, split.counts) == (states, 0.0, (0,))
    assert split.is_certified
    assert price_bound(tree, 3) == (0.0, 0.0)
