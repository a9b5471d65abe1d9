"""Where to keep at most so many states on a prefix tree, exactly."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import check_count
from tree_placement.cost import PrefillCost
from tree_placement.tree._candidates import TreeSites, tree_sites
from tree_placement.tree.prefix_tree import PrefixTree, State, TreePlacement

if TYPE_CHECKING:
    from tree_placement.tree._exact import Nodes, SplitArray


def place_tree(
    tree: PrefixTree,
    budget: int,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Iterable[State] = (),
    forbidden: Iterable[State] = (),
    minimum_depth: int = 0,
) -> TreePlacement:
    """Return at most `budget` new states, on the whole tree, of least expected recompute.

    Parameters
    ----------
    tree
        The tree with its weights.
    budget
        Number of new states at most, >= 0. Fewer are returned where no further one would help.
    grid
        New states stand at depths from the root that are multiples of this many tokens, >= 1.
    cost
        F; counts tokens if None.
    fixed
        States that exist already, on the grid or off it: pairs of a node and the depth within the
        edge into it. They serve overlaps, are not counted in `budget`, and are not returned.
    forbidden
        Places where no new state may stand.
    minimum_depth
        The shallowest depth from the root allowed for a new state, >= 0.

    Returns
    -------
    TreePlacement
        The new states only, and the cost with the fixed ones.

    Raises
    ------
    ValueError
        If `budget` or `minimum_depth` is below 0, `grid` is below 1, a fixed or forbidden state
        does not lie on the tree, or the weights' sums overflow.

    Notes
    -----
    Minimises ``sum_v w_v (F(t_v) - F(l_v))`` over sets of at most k new states, t_v the depth of
    v's end and l_v that of the deepest state at or above it: the k-median of a directed tree whose
    nodes are served by ancestors. For v below a state at s, with A_v(j) the least cost of v's
    subtree when a new state stands in v's edge,

        C_v(s, j) = min(A_v(j), min over j_1 + ... = j of w_v (F_v - F_s) + sum of C_c(s, j_c)),

    over v's children c. A_v is the second term at v's own place, for j - 1. So one pass over v's
    subtree gives A_v from those of the nodes below, and only A is kept.

    O(n k h) time for n nodes, k states and a height of h: tables are no wider than the places
    under them, so merging all siblings of one pass takes O(k) a node, and a node is in a pass for
    each place above it. The passes that decided are repeated to find the states, within the same
    bound. O(n k) memory: at most 17 bytes for each node and number of states 0..k (18 where
    k > 255), and less in bushy trees. Places that no optimum needs are left out first.

    Vigneron, Gao, Golin, Italiano and Li, "An algorithm for finding a k-median in a directed
    tree" (IPL 74, 2000), give O(n k^2 h).

    Examples
    --------
    >>> tree = PrefixTree([-1, 0, 1, 1, 1], [0, 4, 2, 3, 8], [0, 1, 9, 9, 5])
    >>> [place_tree(tree, budget).cost for budget in range(5)]
    [181.0, 85.0, 45.0, 4.0, 0.0]
    >>> place_tree(tree, 2, grid=2)
    TreePlacement(states=((1, 4), (4, 8)), cost=45.0)
    """
    budget = check_count("budget", budget, 0, "pass the number of new states allowed")
    sites = tree_sites(tree, grid, cost, fixed, forbidden, minimum_depth)
    nodes, splits = _layout(sites, budget)
    from tree_placement.tree import _exact

    return sites.placement(_exact.budgeted(nodes, splits))


def tree_cost_curve(
    tree: PrefixTree,
    budget: int,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Iterable[State] = (),
    forbidden: Iterable[State] = (),
    minimum_depth: int = 0,
) -> NDArray[np.float64]:
    """Return the cost of `place_tree` for every budget from 0 to `budget`, float64.

    Arguments and errors as for `place_tree`, time and memory as for its largest budget. The curve
    falls, but need not be convex: see `duality_gap`.

    Examples
    --------
    >>> tree = PrefixTree([-1, 0, 1, 1, 1], [0, 4, 2, 3, 8], [0, 1, 9, 9, 5])
    >>> tree_cost_curve(tree, 5)
    array([181.,  85.,  45.,   4.,   0.,   0.])
    """
    budget = check_count("budget", budget, 0, "pass the largest number of new states")
    sites = tree_sites(tree, grid, cost, fixed, forbidden, minimum_depth)
    nodes, splits = _layout(sites, budget)
    from tree_placement.tree import _exact

    costs = np.minimum.accumulate(_exact.least_costs(nodes, splits))
    return np.pad(costs, (0, budget + 1 - costs.size), mode="edge")


def _layout(sites: TreeSites, budget: int) -> "tuple[Nodes, SplitArray]":
    """Return the tree as the compiled program wants it, and scratch space for its choices."""
    from tree_placement.tree import _exact

    parents, weights = sites.tree.parents, sites.tree.weights
    standing = sites.standing_prefill
    candidates = _exact.without_idle_sites(parents, weights, sites.candidate_prefill, standing)
    budget = min(budget, int(np.count_nonzero(candidates >= 0.0)))
    nodes = _exact.in_preorder(parents, sites.prefill, weights, candidates, standing, budget)
    entries = int(nodes.start[-1] + nodes.chain_width[-1])
    return nodes, np.zeros(entries, dtype=np.min_scalar_type(budget))
