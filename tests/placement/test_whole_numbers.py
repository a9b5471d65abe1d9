"""Counts in numpy's integers, which overflow, give what Python's do; others are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tree_placement import PrefixTree, place, place_priced
from tree_placement.overlap.histogram import OverlapHistogram
from tree_placement.overlap.model import OverlapModel
from tree_placement.overlap.statistics import OverlapStatistics
from tree_placement.path import balanced, balanced_mean, balanced_worst
from tree_placement.path.spacing import block, logarithmic, square_root
from tree_placement.policy import PolicySettings
from tree_placement.replay import Budget, Request, Trace
from tree_placement.tree.decomposition import place_apart, split_budget
from tree_placement.tree.duality import price_bound
from tree_placement.tree.exact import place_tree, tree_cost_curve
from tree_placement.tree.incremental import PricedTree
from tree_placement.tree.marginal import MarginalValues
from tree_placement.tree.priced import place_tree_priced

Count = Callable[[int], int]

INTEGERS = [
    np.dtype(name).type
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
]
MANY = 100
"""Tokens or states that int8 holds, and whose sums and products it does not."""

WEIGHTS = np.random.default_rng(0).integers(0, 9, size=1_000)
TREE = PrefixTree([-1, 0, 1, 1, 1], [0, 400, 200, 300, 800], [0, 1, 9, 9, 5])


def mended(number: Count) -> object:
    tree = PricedTree(20.0, TREE, grid=number(MANY), minimum_depth=number(64))
    leaf = tree.add_leaf(number(4), length=number(MANY), weight=9.0)
    tree.set_weight(number(leaf), 7.0)
    return tree.placement(), tree.total, tree.state_above(number(leaf))


def marginal(number: Count) -> object:
    values = MarginalValues(TREE, [(number(1), number(MANY))])
    values.add((number(4), number(MANY)))
    values.set_weight(number(4), 3.0)
    found = values.saving((number(4), number(MANY))), values.gain((number(3), number(MANY)))
    values.remove((number(1), number(MANY)))
    return found, values.states, values.cost


def learned(number: Count) -> object:
    model = OverlapModel(bin=number(MANY), maximum_scopes=number(3), scope_bins=number(MANY))
    statistics = OverlapStatistics(bin=number(MANY))
    histogram = OverlapHistogram(bin=number(MANY), maximum_bins=number(MANY))
    for overlap, earlier in ((60, 127), (MANY, 110), (120, 90)):
        model.observe([1], number(overlap), number(earlier))
        statistics.observe(number(overlap), number(earlier))
        histogram.observe(number(overlap))
    forecast = model.forecast([1], number(127))
    bins = (*histogram.bins(), *statistics.on_path(1_000))
    return model.to_bytes(), forecast.depths, forecast.weights, bins


def settled(number: Count) -> object:
    settings = PolicySettings(
        states_per_path=number(MANY), grid=number(64), tail=number(MANY), bin=number(MANY)
    )
    budget = Budget(slots=number(MANY), grid=number(64), kv_tokens=number(MANY))
    trace = Trace(number(16), tuple(Request(number(MANY), tuple(range(6))) for _ in range(3)))
    return settings, settings.tail * 64, budget, MANY * (budget.slots or 0), trace, trace.tokens


CALLS: dict[str, Callable[[Count], object]] = {
    "place": lambda n: place(WEIGHTS, n(7), grid=n(MANY), minimum_depth=n(64)),
    "place_priced": lambda n: place_priced(WEIGHTS, 40.0, grid=n(MANY), minimum_depth=n(64)),
    "balanced": lambda n: balanced(n(127), n(MANY)),
    "balanced on a grid": lambda n: balanced(n(127), n(127), grid=n(MANY)),
    "balanced_mean": lambda n: balanced_mean(n(127), n(2), grid=n(MANY)),
    "balanced_worst": lambda n: balanced_worst(n(127), n(127)),
    "block": lambda n: block(n(127), n(MANY), grid=n(64)),
    "square_root": lambda n: square_root(n(127), grid=n(3)),
    "logarithmic": lambda n: logarithmic(n(127), n(1), grid=n(2)),
    "place_tree": lambda n: place_tree(
        TREE, n(3), grid=n(MANY), minimum_depth=n(64), fixed=[(n(4), n(MANY))]
    ),
    "tree_cost_curve": lambda n: tree_cost_curve(TREE, n(127), grid=n(MANY)),
    "place_tree_priced": lambda n: place_tree_priced(
        TREE, 20.0, grid=n(MANY), minimum_depth=n(64), forbidden=[(n(2), n(MANY))]
    ),
    "price_bound": lambda n: price_bound(TREE, n(2), grid=n(MANY)),
    "split_budget": lambda n: split_budget(TREE, n(2), grid=n(MANY), fixed=[(n(4), n(MANY))]),
    "place_apart": lambda n: place_apart(TREE, [n(1), n(1), n(0), n(1)], grid=n(MANY)),
    "PricedTree": mended,
    "MarginalValues": marginal,
    "overlaps": learned,
    "settings": settled,
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("name", CALLS)
def test_small_integers_compute_as_int(name: str, integer: type[np.integer]) -> None:
    assert repr(CALLS[name](integer)) == repr(CALLS[name](int))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "integer"),
    [
        (lambda n: balanced_mean(n(100_000), n(0)), np.int32),
        (lambda n: balanced(n(1_000), np.uint8(255)), np.int64),
        (lambda n: block(n(32_000), np.int8(100)), np.int16),
        (lambda n: place(WEIGHTS, 9, grid=n(200)), np.uint64),
    ],
)
def test_integers_of_two_sizes_compute_as_int(call, integer: type[np.integer]) -> None:
    assert repr(call(integer)) == repr(call(int))


@pytest.mark.parametrize("truth", [True, False, np.True_])
def test_a_truth_value_counts_nothing(truth: bool) -> None:
    with pytest.raises(ValueError, match=r"^length: got .*; need a whole number >= 0, an int; "):
        square_root(truth)
    with pytest.raises(ValueError, match=r"^budget: got .*; need a whole number >= 0, an int; "):
        place(WEIGHTS, truth)


@pytest.mark.parametrize("size", [2**53 + 1, 2**63, 10**30, np.uint64(2**64 - 1)])
@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("grid", lambda size: place(WEIGHTS, 2, grid=size)),
        ("minimum_depth", lambda size: place(WEIGHTS, 2, minimum_depth=size)),
        ("budget", lambda size: place(WEIGHTS, size)),
        ("grid", lambda size: place_tree(TREE, 2, grid=size)),
        ("grid", lambda size: balanced(9, 2, grid=size)),
        ("first", lambda size: logarithmic(1, size)),
        ("length", lambda size: block(size, 2)),
        ("length", square_root),
        ("grid", lambda size: Budget(grid=size)),
    ],
)
def test_numbers_that_float64_may_not_hold_are_refused(what: str, call, size: int) -> None:
    with pytest.raises(ValueError, match=rf"^{what}: got {size}; need at most {2**53} \(2\*\*53\)"):
        call(size)


def test_the_largest_numbers_are_taken() -> None:
    assert place(WEIGHTS, 2**53).cost == 0.0
    assert place(WEIGHTS, 2, grid=2**53).depths.size == 0
    assert logarithmic(2**53)[-1] == 2**53
