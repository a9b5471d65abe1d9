"""Exact placement on trees against enumeration, a naive program, and what must not change."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from brute_force import CONVEX, TreeCase

from tree_placement.cost import PrefillCost, SparseWeights
from tree_placement.path import place
from tree_placement.tree.exact import place_tree, tree_cost_curve
from tree_placement.tree.prefix_tree import PrefixTree, tree_recompute


def random_tree(seed: int, nodes: int, reach: int | None = None) -> PrefixTree:
    rng = np.random.default_rng(seed)
    reach = nodes if reach is None else reach
    parents = [-1] + [int(rng.integers(max(0, v - reach), v)) for v in range(1, nodes)]
    lengths = np.concatenate(([0], rng.integers(1, 90, nodes - 1)))
    return PrefixTree(parents, lengths, rng.integers(0, 30, nodes) * rng.integers(0, 2, nodes))


def greedy_cost(case: TreeCase) -> float:
    """Place one state at a time where it saves most: what a solver that is not exact finds."""
    options = case.keywords()
    options["fixed"] = list(case.fixed)
    for _ in range(case.budget):
        options["fixed"] += place_tree(case.tree(), 1, **options).states
    return tree_recompute(case.tree(), options["fixed"], cost=case.cost)


def test_place_tree_equals_every_set_of_states_tried(cases: int) -> None:
    constrained = 0
    for seed in range(cases):
        case = TreeCase(seed)
        by_count = case.best_by_count()
        placement = place_tree(case.tree(), case.budget, **case.keywords())
        assert placement.cost == min(by_count[: case.budget + 1]), seed
        assert placement.cost == case.recompute(placement.states), seed
        assert len(placement.states) == by_count.index(placement.cost), seed
        assert set(placement.states) <= set(case.allowed), seed
        assert list(placement.states) == sorted(placement.states), seed
        if placement.states:
            assert case.recompute(placement.states[1:]) > placement.cost, seed
        free = place_tree(case.tree(), case.budget, cost=case.cost)
        constrained += free.cost != placement.cost
    assert constrained > cases / 10, "the constraints must matter in many of the cases"


@pytest.mark.parametrize("seed", [397, 572, 995])
def test_a_greedy_choice_is_told_apart(seed: int) -> None:
    case = TreeCase(seed)
    least = min(case.best_by_count()[: case.budget + 1])
    assert place_tree(case.tree(), case.budget, **case.keywords()).cost == least
    assert greedy_cost(case) > least


def test_cost_curve_equals_every_set_of_states_tried(cases: int) -> None:
    for seed in range(cases):
        case = TreeCase(seed)
        by_count = case.best_by_count()
        curve = tree_cost_curve(case.tree(), len(by_count), **case.keywords())
        truth = np.minimum.accumulate([*by_count, by_count[-1]])
        assert curve.tolist() == truth.tolist(), seed


def naive_cost(tree: PrefixTree, budget: int, grid: int, cost: PrefillCost) -> float:
    """The recurrence by memo: a state in each edge or none, every split between siblings."""

    @functools.cache
    def siblings(rest: tuple[int, ...], source: int, states: int) -> float:
        if not rest:
            return 0.0
        return min(
            subtree(rest[0], source, here) + siblings(rest[1:], source, states - here)
            for here in range(states + 1)
        )

    @functools.cache
    def subtree(node: int, source: int, states: int) -> float:
        below = tuple(tree.children_of(node).tolist())
        end = int(tree.depths[node])
        found = [
            tree.weights[node] * (cost(end) - cost(serving)) + siblings(below, serving, left)
            for serving, left in ((source, states), (end // grid * grid, states - 1))
            if left >= 0 and serving > end - tree.lengths[node] - (serving == source) * end
        ]
        return float(min(found))

    return siblings(tuple(tree.children_of(0).tolist()), 0, budget)


@pytest.mark.parametrize("cost", [PrefillCost(), CONVEX])
@pytest.mark.parametrize("reach", [2, 5, 70])
@pytest.mark.parametrize("budget", [0, 3, 7])
def test_place_tree_equals_naive_program_on_larger_trees(
    reach: int, budget: int, cost: PrefillCost
) -> None:
    tree = random_tree(reach, 70, reach)
    placement = place_tree(tree, budget, grid=4, cost=cost)
    assert placement.cost == naive_cost(tree, budget, 4, cost)
    assert placement.cost == tree_recompute(tree, placement.states, cost=cost)
    assert placement.cost != naive_cost(tree, budget + 1, 4, cost), "another budget must differ"


def test_independent_leaves_keep_the_largest_savings() -> None:
    rng = np.random.default_rng(3)
    lengths, weights = rng.integers(1, 1_000, (2, 700))
    tree = PrefixTree([-1] + [0] * 700, [0, *lengths], [0, *weights])
    savings = np.sort(lengths * weights)
    for budget in (255, 256, 300):
        placement = place_tree(tree, budget)
        assert placement.cost == savings[:-budget].sum()
        assert placement.cost != savings[: -budget - 1].sum()
        assert len(placement.states) == budget


def test_one_of_two_chains_takes_more_states_than_a_byte_counts() -> None:
    rng = np.random.default_rng(6)
    parents = [-1, *range(300), 0, *range(301, 600)]
    weights = rng.integers(1, 9, 601) * np.where(np.arange(601) <= 300, 50, 1)
    tree = PrefixTree(parents, [0, *rng.integers(1, 20, 600)], weights)
    curve = tree_cost_curve(tree, 400)
    for budget in (255, 256, 300, 399, 400):
        placement = place_tree(tree, budget)
        assert placement.cost == curve[budget] < curve[budget - 1]
    assert sum(node <= 300 for node, _ in placement.states) > 256


@pytest.mark.parametrize("cost", [PrefillCost(), CONVEX])
@pytest.mark.parametrize("grid", [1, 64])
def test_a_path_written_as_a_tree_costs_what_the_path_does(grid: int, cost: PrefillCost) -> None:
    tree = random_tree(7, 400, reach=1)
    weights = SparseWeights(tree.depths[1:], tree.weights[1:])
    middle = int(tree.depths[200])
    old = [(40, 1), (200, int(tree.lengths[200]))]
    barred = [(node, depth) for node in (300, 301) for depth in range(1, tree.lengths[node] + 1)]
    for budget in (0, 1, 5, 40, 399):
        on_tree = place_tree(tree, budget, grid=grid, cost=cost)
        assert on_tree.cost == place(weights, budget, grid=grid, cost=cost).cost
        on_tree = place_tree(
            tree, budget, grid=grid, cost=cost, fixed=old, forbidden=barred, minimum_depth=500
        )
        on_path = place(
            weights,
            budget,
            grid=grid,
            cost=cost,
            fixed=[int(tree.depths[39]) + 1, middle],
            forbidden=np.arange(tree.depths[299] + 1, tree.depths[301] + 1),
            minimum_depth=500,
        )
        assert on_tree.cost == on_path.cost
        unlike = place(weights, budget, grid=grid, cost=cost, fixed=[middle])
        assert on_tree.cost != unlike.cost, "another problem must differ"


def relabelled(tree: PrefixTree, seed: int) -> tuple[PrefixTree, list[int]]:
    """Return the tree in another order, parents still first, and the new label of each node."""
    rng = np.random.default_rng(seed)
    order, ready = [0], tree.children_of(0).tolist()
    while ready:
        order.append(ready.pop(int(rng.integers(len(ready)))))
        ready += tree.children_of(order[-1]).tolist()
    label = np.argsort(order)
    parents = [-1, *label[tree.parents[order[1:]]]]
    return PrefixTree(parents, tree.lengths[order], tree.weights[order]), label.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_relabelling_changes_nothing(seed: int) -> None:
    tree = random_tree(seed, 120, reach=20)
    other, label = relabelled(tree, seed)
    once, again = place_tree(tree, 9, cost=CONVEX), place_tree(other, 9, cost=CONVEX)
    assert other.parents.tolist() != tree.parents.tolist()
    assert once.cost == again.cost
    renamed = [(label[node], depth) for node, depth in once.states]
    assert tree_recompute(other, renamed, cost=CONVEX) == again.cost
    mixed_up = PrefixTree(other.parents, other.lengths, tree.weights)
    assert place_tree(mixed_up, 9, cost=CONVEX).cost != once.cost


@pytest.mark.parametrize("seed", range(20))
def test_a_longer_budget_never_costs_more(seed: int) -> None:
    tree = random_tree(seed, 150, reach=30)
    curve = tree_cost_curve(tree, 200, grid=2)
    assert (np.diff(curve) <= 0.0).all()
    assert len(np.unique(curve)) > 30
    for budget in (0, 1, 7, 30, 200):
        assert place_tree(tree, budget, grid=2).cost == curve[budget]


def test_scaling_weights_scales_the_cost_only() -> None:
    tree = random_tree(1, 200, reach=30)
    eightfold = PrefixTree(tree.parents, tree.lengths, 8 * tree.weights)
    once, scaled = place_tree(tree, 12), place_tree(eightfold, 12)
    assert once.states == scaled.states
    assert scaled.cost == 8 * once.cost > 0.0


def test_stretching_edges_stretches_the_placement() -> None:
    tree = random_tree(2, 200, reach=30)
    stretched = PrefixTree(tree.parents, 64 * tree.lengths, tree.weights)
    once, longer = place_tree(tree, 12), place_tree(stretched, 12, grid=64)
    assert longer.states == tuple((node, 64 * depth) for node, depth in once.states)
    assert longer.cost == 64 * once.cost > 0.0


def test_integer_weights_equal_repeated_samples() -> None:
    tree = random_tree(4, 100, reach=10)
    samples = [
        (node, int(tree.lengths[node]), 1.0)
        for node in range(1, 100)
        for _ in range(int(tree.weights[node]))
    ]
    observed = PrefixTree.from_observations(tree.parents, tree.lengths, samples).tree
    fewer = PrefixTree.from_observations(tree.parents, tree.lengths, samples[1:]).tree
    assert place_tree(observed, 6).cost == place_tree(tree, 6).cost
    assert place_tree(fewer, 6).cost < place_tree(tree, 6).cost


def test_cutting_an_edge_without_weight_changes_nothing() -> None:
    tree = random_tree(5, 60, reach=10)
    cuts = [(node, 1 + node % int(tree.lengths[node]), 0.0) for node in range(1, 60)]
    ends = [(node, int(tree.lengths[node]), float(tree.weights[node])) for node in range(1, 60)]
    cut = PrefixTree.from_observations(tree.parents, tree.lengths, cuts + ends)
    weighty = PrefixTree.from_observations(tree.parents, tree.lengths, [(9, 1, 50.0), *ends])
    assert len(cut.tree) > len(tree)
    for grid in (1, 8):
        once, again = place_tree(tree, 6, grid=grid), place_tree(cut.tree, 6, grid=grid)
        assert once.cost == again.cost == tree_recompute(tree, cut.coarse(again.states))
        assert place_tree(weighty.tree, 6, grid=grid).cost != once.cost


def test_a_deeper_place_of_the_only_way_down_is_taken() -> None:
    tree = PrefixTree([-1, 0, 1, 2, 2, 2], [0, 5, 5, 1, 1, 1], [0, 0, 0, 1, 1, 1])
    assert place_tree(tree, 1).states == ((2, 5),)
    assert place_tree(tree, 1, forbidden=[(2, depth) for depth in range(3, 6)]).states == ((2, 2),)
    barred = [(2, depth) for depth in range(1, 6)]
    assert place_tree(tree, 1, forbidden=barred).states == ((1, 5),)
    assert place_tree(tree, 9, forbidden=barred).states == ((3, 1), (4, 1), (5, 1))


def test_no_further_states_than_help() -> None:
    assert place_tree(PrefixTree([-1], [0], [5]), 3).states == ()
    tree = PrefixTree([-1, 0, 1, 1], [0, 4, 2, 3], [0, 0, 0, 2])
    assert place_tree(tree, 3).states == ((3, 3),)
    assert place_tree(tree, 3, fixed=[(3, 3)]).states == ()
    assert tree_cost_curve(tree, 2).tolist() == [14.0, 0.0, 0.0]


def test_many_splits_of_equal_cost_give_the_fewest_states() -> None:
    tree = PrefixTree([-1] + [0] * 6, [0] + [2] * 6, [0, 1, 1, 1, 0, 0, 0])
    placement = place_tree(tree, 2)
    assert (len(placement.states), placement.cost) == (2, 2.0)
    assert len(place_tree(tree, 6).states) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": -1}, "budget: got -1; need a whole number >= 0"),
        ({"budget": 1.5}, "budget: got 1.5; need a whole number >= 0"),
        ({"budget": 1, "grid": 0}, "grid: got 0; need a whole number >= 1"),
        ({"budget": 1, "minimum_depth": -1}, "minimum_depth: got -1; need a whole number >= 0"),
        ({"budget": 1, "fixed": [(1, 5)]}, r"fixed: got \(1, 5\); need 1 <= depth <= 4"),
        ({"budget": 1, "forbidden": [(2, 1)]}, r"forbidden: got \(2, 1\); need a node below 2"),
    ],
)
@pytest.mark.parametrize("solve", [place_tree, tree_cost_curve])
def test_bad_input_is_one_clear_line(solve, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve(PrefixTree([-1, 0], [0, 4], [0, 1]), **options)
