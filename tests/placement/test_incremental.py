"""The mended placement against the one solved anew, after each of many random changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from brute_force import CONVEX, TreeCase

from tree_placement.cost import PrefillCost
from tree_placement.tree.incremental import PricedTree
from tree_placement.tree.prefix_tree import PrefixTree, tree_recompute
from tree_placement.tree.priced import place_tree_priced


def assert_solved(priced: PricedTree, price: float, options: dict) -> None:
    anew = place_tree_priced(priced.tree(), price, **options)
    mended = priced.placement()
    assert mended.states == anew.states
    assert mended.cost == anew.cost
    assert priced.state_count == len(anew.states)
    assert priced.total == anew.cost + price * len(anew.states)


def change(priced: PricedTree, rng: np.random.Generator, reach: int) -> None:
    nodes = len(priced)
    weight = float(rng.integers(0, 4))
    if rng.integers(2):
        parent = int(rng.integers(max(0, nodes - reach), nodes))
        priced.add_leaf(parent, int(rng.integers(1, 6)), weight)
    else:
        priced.set_weight(int(rng.integers(0, nodes)), weight)


def test_random_changes_of_small_trees_with_options(cases: int) -> None:
    stale = 0
    for seed in range(cases // 10):
        case = TreeCase(seed)
        rng = np.random.default_rng(seed)
        price = float(rng.integers(0, 60))
        priced = PricedTree(price, case.tree(), **case.keywords())
        assert_solved(priced, price, case.keywords())
        reach = int(rng.choice([1, 3, 99]))
        for _ in range(20):
            before = priced.placement().states
            change(priced, rng, reach)
            assert_solved(priced, price, case.keywords())
            stale += before != priced.placement().states
    assert stale > cases / 10, "a placement that is not mended must be told apart"


@pytest.mark.parametrize("reach", [1, 2, 10, 5_000])
@pytest.mark.parametrize("price", [3.0, 150.0])
def test_a_tree_grown_from_its_root_alone(reach: int, price: float) -> None:
    rng = np.random.default_rng(reach)
    options = {"grid": 2, "cost": CONVEX if price > 100 else PrefillCost()}
    priced = PricedTree(price, **options)
    for step in range(3_000):
        change(priced, rng, reach)
        if step % 60 == 0:
            assert_solved(priced, price, options)
    assert_solved(priced, price, options)
    assert priced.state_count > 20


@pytest.mark.parametrize("reach", [1, 3, 2_000])
def test_real_weights_do_not_drift(reach: int) -> None:
    rng = np.random.default_rng(11)
    parents = [-1, *(int(rng.integers(max(0, node - reach), node)) for node in range(1, 2_000))]
    weights = rng.exponential(size=2_000)
    tree = PrefixTree(parents, [0, *rng.integers(1, 900, 1_999)], weights)
    priced = PricedTree(700.0, tree)
    for _ in range(20_000):
        priced.set_weight(int(rng.integers(1, 2_000)), float(rng.exponential()))
    anew = place_tree_priced(priced.tree(), 700.0)
    assert priced.placement().states == anew.states
    total = anew.cost + 700.0 * len(anew.states)
    assert priced.total == pytest.approx(total, rel=1e-12)
    for node in range(2_000):
        priced.set_weight(node, 0.0)
    assert (priced.state_count, priced.placement().cost) == (0, 0.0)
    assert abs(priced.total) < total * 1e-12
    for node in range(2_000):
        priced.set_weight(node, float(weights[node]))
    assert priced.placement().states == place_tree_priced(tree, 700.0).states


def test_the_state_above_each_node_serves_it() -> None:
    for seed in range(200):
        case = TreeCase(seed)
        priced = PricedTree(case.price, case.tree(), **case.keywords())
        placement = priced.placement()
        states = [*placement.states, *case.fixed]
        for node in range(len(priced)):
            above = [state for state in states if case.is_above(state, node)]
            deepest = max(above, key=case.depth, default=None)
            assert priced.state_above(node) == deepest
        assert tree_recompute(priced.tree(), states, cost=case.cost) == placement.cost


@pytest.mark.parametrize(("children", "price"), [(2, 10.0), (3, 7.5), (6, 6.0)])
def test_one_state_wins_over_several_of_the_same_total(children: int, price: float) -> None:
    priced = PricedTree(price)
    trunk = priced.add_leaf(0, 500)
    for _ in range(children):
        priced.add_leaf(trunk, 1, 5.0)
    assert priced.placement().states == ((trunk, 500),)
    assert priced.total == price + 5.0 * children
    for step in range(20):
        priced.set_weight(trunk + 1 + step % children, 5.0 + step % 3)
        assert_solved(priced, price, {})


def test_weights_of_a_star_with_many_children() -> None:
    children = 3_000
    tree = PrefixTree([-1, 0] + [1] * children, [0, 50] + [7] * children, np.zeros(children + 2))
    priced = PricedTree(20.0, tree)
    rng = np.random.default_rng(12)
    for step in range(300):
        priced.set_weight(int(rng.integers(2, children + 2)), float(rng.integers(0, 5)))
        if step % 50 == 0:
            assert_solved(priced, 20.0, {})
    assert priced.state_above(2) in {(1, 50), (2, 7)}


def test_a_refused_leaf_changes_nothing() -> None:
    priced = PricedTree(1.0, DEEP)
    for length, weight in ((1, 0.0), (2**62, 0.0), (1, 1e300), (0, 1.0)):
        with pytest.raises(ValueError, match=r"^(length|weight): got "):
            priced.add_leaf(1, length, weight)
    assert len(priced) == 2
    assert_solved(priced, 1.0, {})


DEEP = PrefixTree([-1, 0], [0, 2**53], [0, 1])
OVERFLOWING = PrefixTree([-1, 0, 0], [0, 1, 1], [0, 1e308, 1e308])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PricedTree(-1.0), r"price: got -1.0; need a finite number >= 0; "),
        (lambda: PricedTree(1.0, grid=0), r"grid: got 0; need a whole number >= 1; "),
        (lambda: PricedTree(1.0, fixed=[(1, 1)]), r"fixed: got \(1, 1\); need a node below 1; "),
        (lambda: PricedTree(1.0).add_leaf(1, 1), r"parent: got 1; need a whole number from 0 to 0"),
        (lambda: PricedTree(1.0).add_leaf(-1, 1), r"parent: got -1; need a whole number from 0 "),
        (lambda: PricedTree(1.0).add_leaf(0, 0), r"length: got 0; need a whole number >= 1; "),
        (lambda: PricedTree(1.0).add_leaf(0, 1.0), r"length: got 1.0; need a whole number >= 1, "),
        (lambda: PricedTree(1.0).add_leaf(0.0, 1), r"parent: got 0.0; need a whole number from 0"),
        (lambda: PricedTree(1.0).add_leaf(0, 2**62), r"length: got 4611686018427387904; need at "),
        (
            lambda: PricedTree(1.0).add_leaf(0, 9, 1e300),
            r"weight: got 1e\+300 at depth 9; need fin",
        ),
        (lambda: PricedTree(1.0, OVERFLOWING), r"weights: got a sum of inf with F = 1 "),
        (lambda: PricedTree(1.0, DEEP).add_leaf(1, 1), r"length: got 9007199254740993; need at mo"),
        (lambda: PricedTree(1.0, DEEP).set_weight(1, 1e300), r"weight: got 1e\+300 at depth 900"),
        (lambda: PricedTree(1.0).add_leaf(0, 1, -2.0), r"weight: got -2.0; need a finite number "),
        (lambda: PricedTree(1.0).set_weight(0, math.nan), r"weight: got nan; need a finite number"),
        (lambda: PricedTree(1.0).set_weight(3, 1.0), r"node: got 3; need a whole number from 0 to"),
        (lambda: PricedTree(1.0).state_above(1), r"node: got 1; need a whole number from 0 to 0"),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
