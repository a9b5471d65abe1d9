"""The bound that prices give on the optimum of a whole tree, and when the two differ."""

from collections.abc import Iterable
from typing import NamedTuple

from tree_placement._check import check_count
from tree_placement.cost import PrefillCost
from tree_placement.tree.exact import place_tree
from tree_placement.tree.prefix_tree import PrefixTree, State, tree_recompute
from tree_placement.tree.priced import place_tree_priced


class PriceBound(NamedTuple):
    """The best lower bound on the optimum under a budget that a price per state gives.

    Parameters
    ----------
    value
        max over prices >= 0 of (least cost plus price for each state) - price * budget.
    price
        A price where the maximum is reached.
    """

    value: float
    price: float


def price_bound(
    tree: PrefixTree,
    budget: int,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Iterable[State] = (),
    forbidden: Iterable[State] = (),
    minimum_depth: int = 0,
) -> PriceBound:
    """Return the Lagrangian dual value of `place_tree`: a lower bound on its cost.

    Arguments and errors as for `place_tree`.

    Notes
    -----
    With C(m) the least cost of m new states, every price p gives the lower bound ``min over m of
    C(m) + p m``, less ``p budget``. Its maximum over p is the lower convex hull of C at `budget`.
    The search holds an optimum of some price on each side of the budget and asks the price that
    is the slope between them, until no optimum lies below the line through both.

    Time is that of `place_tree_priced` for each price asked: 5 to 20 on random trees of up to
    50,000 nodes, at worst one for each corner of the hull.

    Examples
    --------
    >>> tree = PrefixTree([-1, 0, 1, 1, 1], [0, 4, 2, 3, 8], [0, 1, 9, 9, 5])
    >>> price_bound(tree, 2)
    PriceBound(value=44.5, price=40.5)
    """
    budget = check_count("budget", budget, 0, "pass the number of new states allowed")
    fixed, forbidden = tuple(fixed), tuple(forbidden)

    def priced(price: float) -> tuple[int, float]:
        placement = place_tree_priced(
            tree,
            price,
            grid=grid,
            cost=cost,
            fixed=fixed,
            forbidden=forbidden,
            minimum_depth=minimum_depth,
        )
        return len(placement.states), placement.cost

    few, few_cost = 0, tree_recompute(tree, fixed, cost=cost)
    many, many_cost = priced(0.0)
    if many <= budget:
        return PriceBound(many_cost, 0.0)
    while True:
        price = (few_cost - many_cost) / (many - few)
        states, states_cost = priced(price)
        if not few < states < many:
            return PriceBound(few_cost - price * (budget - few), price)
        if states <= budget:
            few, few_cost = states, states_cost
        else:
            many, many_cost = states, states_cost


def duality_gap(
    tree: PrefixTree,
    budget: int,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Iterable[State] = (),
    forbidden: Iterable[State] = (),
    minimum_depth: int = 0,
) -> float:
    """Return what `place_tree` costs above `price_bound`.

    Arguments and errors as for `place_tree`, time and memory those of both.

    Notes
    -----
    The gap is positive where `budget` lies above the lower convex hull of the optimal cost over
    the number of states, and there no price finds an optimum of this budget. It is 0 for every
    budget where the cost is convex: on a path, and where a tree falls apart into independent
    paths, from the root or from fixed states. The cost need not be convex where one state above
    several branches gives way, all at once, to a state on each of them.

    Examples
    --------
    The optimal costs of 1, 2 and 3 states are 85, 45 and 4:

    >>> tree = PrefixTree([-1, 0, 1, 1, 1], [0, 4, 2, 3, 8], [0, 1, 9, 9, 5])
    >>> [duality_gap(tree, budget) for budget in range(5)]
    [0.0, 0.0, 0.5, 0.0, 0.0]
    """
    fixed, forbidden = tuple(fixed), tuple(forbidden)
    optimum = place_tree(
        tree,
        budget,
        grid=grid,
        cost=cost,
        fixed=fixed,
        forbidden=forbidden,
        minimum_depth=minimum_depth,
    )
    bound = price_bound(
        tree,
        budget,
        grid=grid,
        cost=cost,
        fixed=fixed,
        forbidden=forbidden,
        minimum_depth=minimum_depth,
    )
    return max(optimum.cost - bound.value, 0.0)
