"""How near the optimum a set of states is: beside the decomposition's and the exact placement's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tree_placement._check import invalid
from tree_placement.cost import PrefillCost
from tree_placement.tree.decomposition import split_budget
from tree_placement.tree.duality import price_bound
from tree_placement.tree.exact import place_tree
from tree_placement.tree.prefix_tree import PrefixTree, State, tree_recompute
from tree_placement.tree.priced import place_tree_priced
from tree_placement.tree.shape import TreeShape, classify

MOST_NODES = 20_000
"""Nodes of a tree up to which the exact placement is computed."""

_ABOVE = 1.0 + 1e-9
"""Lifts a price above a tie of two numbers of states, whose sums are rounded."""


@dataclass(frozen=True)
class Optimality:
    """Expected recompute of states on a tree, and of as many placed otherwise.

    Parameters
    ----------
    shape
        The tree's.
    states
        How many there are.
    without
        `tree_recompute` without any state.
    cost
        `tree_recompute` of them.
    apart
        That of the decomposition: of `split_budget` on a chain, star or comb, and on a general tree
        of the priced placement with most states, of those with no more.
    exact
        That of `place_tree`: no placement of so many states costs less.
    """

    shape: TreeShape
    states: int
    without: float
    cost: float
    apart: float
    exact: float

    @property
    def ratio(self) -> float:
        """`cost` over `exact`: 1 at the optimum, infinity where that costs nothing and this does.

        Examples
        --------
        >>> states = Optimality(TreeShape.STAR, 1, without=90.0, cost=44.0, apart=44.0, exact=40.0)
        >>> states.ratio, states.saved
        (1.1, 0.92)
        """
        return over(self.cost, self.exact)

    @property
    def ratio_apart(self) -> float:
        """`apart` over `exact`."""
        return over(self.apart, self.exact)

    @property
    def saved(self) -> float:
        """What the states save, over what the exact placement does; 1 where that saves nothing."""
        most = self.without - self.exact
        return (self.without - self.cost) / most if most > 0.0 else 1.0


def measure_optimality(
    tree: PrefixTree,
    states: Iterable[State],
    budget: int | None = None,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
) -> Optimality:
    """Hold states on a tree against the best placements of as many.

    Parameters
    ----------
    tree
        The tree with its weights, of at most `MOST_NODES` nodes.
    states
        Pairs of a node and the depth in tokens within the edge into it, in any order.
    budget
        Number of states at most of the other placements, >= 0; as many as `states` if None.
    grid
        The other placements have states at multiples of this many tokens, >= 1.
    cost
        F; counts tokens if None.

    Raises
    ------
    ValueError
        If the tree has too many nodes, `budget` is below 0, `grid` is below 1, or a state does not
        lie on the tree.

    Notes
    -----
    Time and memory are those of `place_tree` and of `split_budget` or `price_bound`.

    Examples
    --------
    >>> tree = PrefixTree([-1, 0, 1, 1, 1], [0, 4, 2, 3, 8], [0, 1, 9, 9, 5])
    >>> told = measure_optimality(tree, [(1, 4), (2, 2)])
    >>> told.without, told.cost, told.apart, told.exact
    (181.0, 67.0, 58.0, 45.0)
    """
    if len(tree) > MOST_NODES:
        fix = "pass a part of it: the exact placement takes time and memory"
        raise invalid("tree", f"{len(tree)} nodes", f"at most {MOST_NODES}", fix)
    states = tuple(states)
    budget = len(states) if budget is None else budget
    shape = classify(tree)
    if shape is TreeShape.GENERAL:
        price = price_bound(tree, budget, grid=grid, cost=cost).price
        apart = place_tree_priced(tree, _ABOVE * price, grid=grid, cost=cost)
    else:
        apart = split_budget(tree, budget, grid=grid, cost=cost).placement
    return Optimality(
        shape=shape,
        states=len(states),
        without=tree_recompute(tree, (), cost=cost),
        cost=tree_recompute(tree, states, cost=cost),
        apart=apart.cost,
        exact=place_tree(tree, budget, grid=grid, cost=cost).cost,
    )


def over(cost: float, exact: float) -> float:
    """Return a cost over the exact placement's: 1 where they are equal, both nothing or not."""
    if cost == exact:
        return 1.0
    return cost / exact if exact > 0.0 else float("inf")
