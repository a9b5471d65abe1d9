"""Where to keep states on a prefix tree when each has a price, exactly."""

from collections.abc import Iterable

import numpy as np

from tree_placement._check import check_at_least
from tree_placement.cost import PrefillCost
from tree_placement.tree._candidates import tree_sites
from tree_placement.tree.prefix_tree import PrefixTree, State, TreePlacement


def place_tree_priced(
    tree: PrefixTree,
    price: float,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Iterable[State] = (),
    forbidden: Iterable[State] = (),
    minimum_depth: int = 0,
) -> TreePlacement:
    """Return the new states that minimise the tree's recompute plus `price` for each of them.

    Of several placements of the same total, one with the fewest states is returned, where sums are
    exact in float64 (whole numbers); elsewhere rounding may decide between totals that are equal.

    Parameters
    ----------
    tree
        The tree with its weights.
    price
        What a new state must save to be worth its slot, in units of F times weight: finite,
        >= 0.
    grid
        New states stand at depths from the root that are multiples of this many tokens, >= 1.
    cost
        F; counts tokens if None.
    fixed
        States that exist already, on the grid or off it: pairs of a node and the depth within the
        edge into it. They serve overlaps, have no price, and are not returned.
    forbidden
        Places where no new state may stand.
    minimum_depth
        The shallowest depth from the root allowed for a new state, >= 0.

    Returns
    -------
    TreePlacement
        The new states only, and the cost with the fixed ones, without the price.

    Raises
    ------
    ValueError
        If `price` is negative or not finite, `minimum_depth` is below 0, `grid` is below 1, a
        fixed or forbidden state does not lie on the tree, or the weights' sums overflow.

    Notes
    -----
    Minimises ``sum_v w_v (F(t_v) - F(l_v)) + price * m`` over sets of m new states, t_v the depth
    of v's end and l_v that of the deepest state at or above it. O(n log n) time and O(n) memory
    for n nodes, whatever the height.

    With one budget for the whole tree the least cost need not be convex in the number of states,
    and then no price finds the optimum of some budgets. ``cost + price * (m - budget)`` is a
    lower bound of every budget's optimum.

    Examples
    --------
    >>> tree = PrefixTree([-1, 0, 1, 1, 1], [0, 4, 2, 3, 8], [0, 1, 9, 9, 5])
    >>> place_tree_priced(tree, 40)
    TreePlacement(states=((2, 2), (3, 3), (4, 8)), cost=4.0)
    >>> place_tree_priced(tree, 30, fixed=[(1, 4)])
    TreePlacement(states=((4, 8),), cost=45.0)
    """
    check_at_least("price", price, 0.0, "pass what a state must save")
    sites = tree_sites(tree, grid, cost, fixed, forbidden, minimum_depth)
    from tree_placement.tree import _priced, _sites

    chosen = _priced.solve(
        tree.parents.astype(np.int32),
        tree.weights,
        sites.standing_prefill,
        sites.candidate_prefill,
        float(price),
        _sites.empty_sites(len(tree)),
    )
    return sites.placement(chosen)
