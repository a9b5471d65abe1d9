"""States held against the best placements of as many: all sets of places, tried one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tree_placement.tree import (
    PrefixTree,
    TreeShape,
    classify,
    measure_optimality,
    place_tree_priced,
    split_budget,
    tree_recompute,
)
from tree_placement.tree import optimality as module
from tree_placement.tree.prefix_tree import State

SEEDS = pytest.mark.parametrize("seed", range(120))


def drawn(seed: int) -> tuple[PrefixTree, list[State]]:
    """A small random tree, with some states somewhere on it."""
    draw = np.random.default_rng(seed)
    nodes = int(draw.integers(2, 12))
    reach = int(draw.choice([1, 2, 9]))
    parents = [-1, *(int(draw.integers(max(0, v - reach), v)) for v in range(1, nodes))]
    lengths = [0, *draw.integers(1, 6, nodes - 1).tolist()]
    tree = PrefixTree(parents, lengths, draw.integers(0, 9, nodes))
    places = [(node, depth) for node in range(1, nodes) for depth in range(1, lengths[node] + 1)]
    count = int(draw.integers(0, min(len(places), 5) + 1))
    return tree, [places[each] for each in draw.permutation(len(places))[:count]]


def recompute(tree: PrefixTree, states: list[State]) -> float:
    """The cost by its definition, node by node."""
    total = 0.0
    for node in range(len(tree)):
        serving, above = 0, node
        while above > 0:
            begin = int(tree.depths[above] - tree.lengths[above])
            serving = max([serving, *(begin + depth for at, depth in states if at == above)])
            above = int(tree.parents[above])
        total += float(tree.weights[node]) * (int(tree.depths[node]) - serving)
    return total


def least(tree: PrefixTree, count: int, grid: int) -> float:
    """The least cost of at most `count` states at depths on the grid."""
    places = [
        (node, depth)
        for node in range(1, len(tree))
        for depth in range(1, int(tree.lengths[node]) + 1)
        if (int(tree.depths[node] - tree.lengths[node]) + depth) % grid == 0
    ]
    ends = list(dict(places).items())
    sizes = range(min(count, len(ends)) + 1)
    return min(
        recompute(tree, list(chosen)) for size in sizes for chosen in combinations(ends, size)
    )


@pytest.mark.parametrize("grid", [1, 3])
@SEEDS
def test_against_every_set_of_places(seed: int, grid: int) -> None:
    tree, states = drawn(seed)
    told = measure_optimality(tree, states, grid=grid)
    assert (told.shape, told.states) == (classify(tree), len(states))
    assert told.cost == recompute(tree, states)
    assert told.without == recompute(tree, [])
    assert told.exact == least(tree, len(states), grid)
    assert told.apart >= told.exact
    more = measure_optimality(tree, states, len(states) + 1, grid=grid)
    assert (more.states, more.cost) == (told.states, told.cost)
    assert more.exact == least(tree, len(states) + 1, grid)
    if grid == 1:
        assert told.ratio >= 1.0


@SEEDS
def test_the_decomposition_is_that_of_the_shape(seed: int) -> None:
    """Branch by branch, or on general trees the most states that one price buys within as many."""
    tree, states = drawn(seed)
    told = measure_optimality(tree, states)
    if told.shape is not TreeShape.GENERAL:
        assert told.apart == split_budget(tree, len(states)).placement.cost
        return
    priced = [place_tree_priced(tree, price) for price in np.arange(0.0, 400.0, 0.25)]
    bought = [each.cost for each in priced if len(each.states) <= len(states)]
    assert told.apart <= min(bought)
    assert told.apart in [least(tree, count, grid=1) for count in range(len(states) + 1)]


def test_another_cost_would_be_seen() -> None:
    """Not every set of states is the best, nor every best one that of a price."""
    seen = [measure_optimality(*drawn(seed)) for seed in range(120)]
    assert sum(each.ratio > 1.0 for each in seen) > 40
    assert any(each.ratio_apart > 1.0 for each in seen)
    assert {each.shape for each in seen} == set(TreeShape)


def test_ratios_at_no_cost() -> None:
    tree = PrefixTree([-1, 0], [0, 4], [0, 2])
    best, near = (measure_optimality(tree, [(1, depth)]) for depth in (4, 3))
    assert (best.ratio, near.ratio) == (1.0, float("inf"))
    assert (best.saved, near.saved) == (1.0, 0.75)
    assert measure_optimality(tree, []).saved == 1.0
    assert tree_recompute(tree, [(1, 3)]) == 2.0


def test_a_tree_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 3)
    tree = PrefixTree([-1, 0, 1, 2], [0, 4, 2, 3], [0, 1, 9, 5])
    with pytest.raises(ValueError, match="tree: got 4 nodes; need at most 3"):
        measure_optimality(tree, [])
