"""Where states may stand on a tree: the options of a placement reduced to one depth an edge.

Weights stand at nodes' ends. So of the states in one edge only the deepest serves anything, and
any depth there is outdone by a deeper one. What is left of an edge is the deepest state that
stands in it already, and the deepest depth below that one where a new state may stand.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import check_count
from tree_placement.cost import PrefillCost, check_sums
from tree_placement.tree.prefix_tree import (
    PrefixTree,
    State,
    TreePlacement,
    as_plain,
    checked_states,
    tree_recompute,
)


@dataclass(frozen=True, eq=False)
class TreeSites:
    """A tree and, for each of its n edges, the states that matter there.

    Parameters
    ----------
    tree, cost
        The tree, and F.
    grid, minimum_depth
        Where new states may stand.
    fixed
        All states that exist already.
    prefill
        F at each node's end, (n,).
    standing
        Depth from the root of the deepest fixed state in the edge into each node, -1 where there
        is none; 0 for the root, which serves all, (n,).
    candidates
        Depth from the root of the deepest place for a new state in each edge that is deeper than
        `standing`, -1 where there is none, (n,).
    standing_prefill, candidate_prefill
        F at those depths, -1.0 where there is none, (n,).
    """

    tree: PrefixTree
    cost: PrefillCost
    grid: int
    minimum_depth: int
    fixed: tuple[State, ...]
    prefill: NDArray[np.float64]
    standing: NDArray[np.int64]
    candidates: NDArray[np.int64]
    standing_prefill: NDArray[np.float64]
    candidate_prefill: NDArray[np.float64]

    def placement(self, nodes: NDArray[np.integer]) -> TreePlacement:
        """Return new states at the candidates of the edges into `nodes`, and the tree's cost."""
        nodes = np.sort(nodes)
        within = self.candidates[nodes] - self.tree.depths[self.tree.parents[nodes]]
        states = tuple(zip(nodes.tolist(), within.tolist(), strict=True))
        recompute = tree_recompute(self.tree, self.fixed + states, cost=self.cost)
        return TreePlacement(states, recompute)


def tree_sites(
    tree: PrefixTree,
    grid: int,
    cost: PrefillCost | None,
    fixed: Iterable[State],
    forbidden: Iterable[State],
    minimum_depth: int,
) -> TreeSites:
    """Check the options that all placements on trees share, and lay out the sites.

    O(n + m log m) time for n nodes and m fixed and forbidden states.
    """
    grid = check_count("grid", grid, 1, "pass the distance between depths allowed")
    minimum_depth = check_count("minimum_depth", minimum_depth, 0, "pass 0 to allow every depth")
    fixed = tuple(fixed)
    nodes, depths = checked_states("fixed", tree, fixed)
    prefill = PrefillCost() if cost is None else cost
    check_sums(tree.weights, int(tree.depths.max()), prefill)
    standing = np.full(len(tree), -1, dtype=np.int64)
    standing[0] = 0
    np.maximum.at(standing, nodes, depths)
    candidates = tree.depths // grid * grid
    _step_over(candidates, *checked_states("forbidden", tree, forbidden), grid)
    above = np.maximum(standing, tree.depths - tree.lengths)
    candidates[(candidates <= above) | (candidates < minimum_depth)] = -1
    return TreeSites(
        tree=tree,
        cost=prefill,
        grid=grid,
        minimum_depth=minimum_depth,
        fixed=as_plain(fixed),
        prefill=prefill(tree.depths),
        standing=standing,
        candidates=candidates,
        standing_prefill=np.where(standing >= 0, prefill(standing), -1.0),
        candidate_prefill=np.where(candidates >= 0, prefill(candidates), -1.0),
    )


def _step_over(
    candidates: NDArray[np.int64],
    nodes: NDArray[np.int64],
    forbidden: NDArray[np.int64],
    grid: int,
) -> None:
    """Lift each candidate that is forbidden by grid steps until it is not."""
    for place in np.argsort(-forbidden):
        if candidates[nodes[place]] == forbidden[place]:
            candidates[nodes[place]] -= grid
