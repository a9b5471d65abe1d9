"""The priced placement on trees against every set of states, and against a plain recursion."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from brute_force import CONVEX, TreeCase

from tree_placement.cost import PrefillCost
from tree_placement.path import place_priced
from tree_placement.tree.prefix_tree import PrefixTree, tree_recompute
from tree_placement.tree.priced import place_tree_priced

NOT_CONVEX_IN_BUDGET = PrefixTree([-1, 0, 1, 1, 1], [0, 4, 2, 3, 8], [0, 1, 9, 9, 5])
COST_BY_BUDGET = [181, 85, 45, 4, 0]


def greedy(case: TreeCase) -> float:
    """Return the total of adding the state that saves most as long as it pays."""
    states: tuple = ()
    total = case.recompute(states)
    while True:
        following = [(case.recompute((*states, place)), place) for place in case.allowed]
        cost, place = min(following, default=(np.inf, None))
        if cost + case.price * (len(states) + 1) >= total:
            return total
        states = (*states, place)
        total = cost + case.price * len(states)


def test_equals_enumeration_with_fewest_states(cases: int) -> None:
    ties = constrained = dearer = 0
    for seed in range(cases):
        case = TreeCase(seed)
        totals = [cost + case.price * m for m, cost in enumerate(case.best_by_count())]
        placement = place_tree_priced(case.tree(), case.price, **case.keywords())
        count = len(placement.states)
        assert placement.cost + case.price * count == min(totals), seed
        assert count == totals.index(min(totals)), seed
        assert placement.cost == case.recompute(placement.states), seed
        assert set(placement.states) <= set(case.allowed), seed
        assert list(placement.states) == sorted(placement.states), seed
        ties += totals.count(min(totals)) > 1
        free = place_tree_priced(case.tree(), case.price, cost=case.cost)
        constrained += free.cost != placement.cost
        other = place_tree_priced(case.tree(), case.price + 1, **case.keywords())
        dearer += other.cost + case.price * len(other.states) > min(totals)
    assert ties > cases / 50, "ties must occur"
    assert constrained > cases / 20, "the constraints must matter in many of the cases"
    assert dearer > cases / 50, "the optimum of a price slightly higher must be told apart"


def test_a_greedy_choice_is_told_apart() -> None:
    missed = 0
    for case in map(TreeCase, range(1000)):
        placement = place_tree_priced(case.tree(), case.price, **case.keywords())
        excess = greedy(case) - placement.cost - case.price * len(placement.states)
        assert excess >= 0
        missed += excess > 0
    assert missed > 2


def fewest_of_least(tree: PrefixTree, price: float, grid: int, cost: PrefillCost) -> tuple:
    """Return (total, states) by the recursion as it is written, x among all depths above."""
    prefill = [int(cost(depth)) for depth in range(int(tree.depths.max()) + 1)]

    @cache
    def best(node: int, serving: int) -> tuple[float, int]:
        end = int(tree.depths[node])
        choices = [below(node, serving)]
        place = end // grid * grid
        if place > end - tree.lengths[node]:
            total, count = below(node, place)
            choices.append((total + price, count + 1))
        return min(choices)

    def below(node: int, serving: int) -> tuple[float, int]:
        total = tree.weights[node] * (prefill[int(tree.depths[node])] - prefill[serving])
        parts = [best(int(child), serving) for child in tree.children_of(node)]
        return total + sum(part[0] for part in parts), sum(part[1] for part in parts)

    return below(0, 0)


def random_tree(nodes: int, reach: int, seed: int) -> PrefixTree:
    rng = np.random.default_rng(seed)
    parents = [-1, *(int(rng.integers(max(0, node - reach), node)) for node in range(1, nodes))]
    weights = rng.integers(0, 9, nodes) * rng.integers(0, 2, nodes)
    return PrefixTree(parents, [0, *rng.integers(1, 30, nodes - 1)], weights)


@pytest.mark.parametrize("cost", [PrefillCost(), CONVEX])
@pytest.mark.parametrize("reach", [1, 2, 5, 20, 150])
def test_equals_the_recursion_on_larger_trees(reach: int, cost: PrefillCost) -> None:
    counts = set()
    for seed in range(4):
        tree = random_tree(150, reach, seed)
        for price in (0.0, 7.0, 60.0, 900.0, 20_000.0):
            placement = place_tree_priced(tree, price, grid=1 + 6 * (seed % 2), cost=cost)
            found = placement.cost + price * len(placement.states), len(placement.states)
            assert found == fewest_of_least(tree, price, 1 + 6 * (seed % 2), cost)
            counts.add(len(placement.states))
    assert len(counts) > 6


@pytest.mark.parametrize(("children", "price"), [(2, 10.0), (3, 7.5), (6, 6.0)])
def test_one_state_wins_over_several_of_the_same_total(children: int, price: float) -> None:
    tree = PrefixTree([-1, 0] + [1] * children, [0, 500] + [1] * children, [0, 0] + [5] * children)
    assert place_tree_priced(tree, price).states == ((1, 500),)
    assert len(place_tree_priced(tree, price - 0.5).states) == children


@pytest.mark.parametrize("grid", [1, 16])
def test_a_path_as_a_tree_gives_the_path_s_answer(grid: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        weights = rng.integers(0, 9, 120) * rng.integers(0, 2, 120)
        cuts = np.unique(rng.integers(1, 120, 5))
        lengths = [0, *np.diff(np.concatenate(([0], cuts, [120])))]
        ends = np.cumsum(lengths)
        nodes = np.searchsorted(ends, np.arange(1, 121))
        within = np.arange(1, 121) - ends[nodes - 1]
        observed = PrefixTree.from_observations(
            np.arange(-1, len(lengths) - 1), lengths, zip(nodes, within, weights, strict=True)
        )
        for price in (0.0, 5.0, 90.0, 800.0):
            path = place_priced(weights, price, grid=grid, cost=CONVEX)
            tree = place_tree_priced(observed.tree, price, grid=grid, cost=CONVEX)
            assert tree.cost == path.cost
            assert len(tree.states) == len(path.depths)


def test_no_price_finds_the_budget_where_the_cost_is_not_convex() -> None:
    counts = set()
    for price in np.arange(0.0, 200.0, 0.25):
        placement = place_tree_priced(NOT_CONVEX_IN_BUDGET, float(price))
        counts.add(len(placement.states))
        assert placement.cost == COST_BY_BUDGET[len(placement.states)]
        total = placement.cost + price * len(placement.states)
        bounds = [total - price * budget for budget in range(5)]
        assert all(bound <= best for bound, best in zip(bounds, COST_BY_BUDGET, strict=True))
    assert counts == {0, 1, 3, 4}


def test_a_free_state_stands_at_each_weight_and_nowhere_else() -> None:
    tree = random_tree(2_000, 40, 3)
    real = PrefixTree(tree.parents, tree.lengths, tree.weights * 0.1)
    placement = place_tree_priced(real, 0.0)
    assert placement.cost == 0.0
    weighty = np.flatnonzero(tree.weights[1:]) + 1
    assert [node for node, _ in placement.states] == weighty.tolist()
    assert [depth for _, depth in placement.states] == tree.lengths[weighty].tolist()


def test_scaling_weights_and_price_scales_the_cost_only() -> None:
    tree = random_tree(500, 30, 4)
    eightfold = PrefixTree(tree.parents, tree.lengths, 8 * tree.weights)
    once, scaled = place_tree_priced(tree, 55.0), place_tree_priced(eightfold, 440.0)
    assert once.states == scaled.states
    assert scaled.cost == 8 * once.cost


def test_relabelling_changes_nothing() -> None:
    rng = np.random.default_rng(6)
    tree = random_tree(400, 400, 6)
    by_depth = np.concatenate(([0], 1 + np.lexsort((rng.random(399), tree.depths[1:]))))
    label = np.argsort(by_depth)
    parents = np.concatenate(([-1], label[tree.parents[by_depth[1:]]]))
    other = PrefixTree(parents, tree.lengths[by_depth], tree.weights[by_depth])
    for price in (0.0, 9.0, 150.0, 2_000.0):
        once, again = place_tree_priced(tree, price), place_tree_priced(other, price)
        assert once.cost == again.cost
        assert len(once.states) == len(again.states)


def test_a_higher_price_never_buys_more_states() -> None:
    tree = random_tree(800, 25, 7)
    counts, costs = [], []
    for price in np.geomspace(1.0, 1e5, 60):
        placement = place_tree_priced(tree, float(price))
        counts.append(len(placement.states))
        costs.append(placement.cost)
    assert counts == sorted(counts, reverse=True)
    assert costs == sorted(costs)
    assert counts[0] > 100 > counts[-1]


def test_real_weights_leave_no_single_change_that_pays() -> None:
    rng = np.random.default_rng(9)
    tree = random_tree(60, 12, 9)
    tree = PrefixTree(tree.parents, tree.lengths, rng.exponential(size=60) ** 2)
    price = 12.5
    placement = place_tree_priced(tree, price)
    total = placement.cost + price * len(placement.states)
    chosen = set(placement.states)
    for node in range(1, 60):
        changed = chosen ^ {(node, int(tree.lengths[node]))}
        assert tree_recompute(tree, changed) + price * len(changed) >= total * (1 - 1e-12)


def test_trees_without_a_place_for_a_state() -> None:
    root = PrefixTree([-1], [0], [5])
    assert place_tree_priced(root, 0.0).states == ()
    assert place_tree_priced(root, 0.0).cost == 0.0
    tree = PrefixTree([-1, 0, 1], [0, 3, 3], [0, 1, 1])
    assert place_tree_priced(tree, 0.0, grid=7).cost == 9.0
    assert place_tree_priced(tree, 0.0, minimum_depth=7).states == ()
    assert place_tree_priced(tree, 0.0, fixed=[(1, 3), (2, 3)]).states == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"price": -1.0}, r"price: got -1.0; need a finite number >= 0; "),
        ({"price": np.nan}, r"price: got nan; need a finite number >= 0; "),
        ({"price": np.inf}, r"price: got inf; need a finite number >= 0; "),
        ({"grid": 0}, r"grid: got 0; need a whole number >= 1; "),
        ({"minimum_depth": -1}, r"minimum_depth: got -1; need a whole number >= 0; "),
        ({"fixed": [(0, 0)]}, r"fixed: got \(0, 0\); need 1 <= depth <= 0 "),
        ({"fixed": [(9, 1)]}, r"fixed: got \(9, 1\); need a node below 5; "),
        ({"forbidden": [(1, 5)]}, r"forbidden: got \(1, 5\); need 1 <= depth <= 4 "),
    ],
)
def test_bad_input_is_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        place_tree_priced(NOT_CONVEX_IN_BUDGET, **{"price": 1.0, **options})
