"""What a policy expects of the next prompt, as a prefix tree: what its states can be measured by.

The weight of a node is the hazard of the state that is known there: how many prompts, of the next
one, are expected to resume from it if it lives. `tree_recompute` of the live states on this tree is
therefore the expected number of tokens that the next prompt computes though the tree holds them,
and what it rises by without a state is that state's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tree_placement.policy.branches import Branches
from tree_placement.policy.columns import Reals
from tree_placement.tree.prefix_tree import PrefixTree, State


@dataclass(frozen=True, eq=False)
class TreeForecast:
    """A policy's expectation, and the states that it keeps for it.

    Parameters
    ----------
    tree
        A node at each known state, live or missed, weighted with its hazard, and at each junction
        of branches that lead to one, weighted with nothing unless a state is known there.
    kept
        The live states, in the order of their nodes; each stands at its node's end.
    ids
        The ids that the cache gives them, in the same order.

    Examples
    --------
    >>> from tree_placement.policy import PathPart, PolicySettings, SparsePolicy
    >>> policy = SparsePolicy(PolicySettings())
    >>> policy.add(7, (PathPart(1, 640),), policy.unplanned("", 640))
    >>> forecast = policy.forecast()
    >>> forecast.tree.depths, forecast.tree.weights, forecast.kept, forecast.ids
    (array([  0, 640]), array([0.        , 0.03958333]), ((1, 640),), (7,))
    """

    tree: PrefixTree
    kept: tuple[State, ...]
    ids: tuple[int, ...]


def tree_forecast(branches: Branches, rates: Reals, live: Mapping[int, int]) -> TreeForecast:
    """Return the forecast of known states.

    Parameters
    ----------
    branches
        Those that lead to a known state, with the rows of the states on each.
    rates
        Hazard of each row.
    live
        Id of each row that lives.

    Notes
    -----
    O(n log n) time for n known states.
    """
    parents, depths, weights = [-1], [0], [0.0]
    node_at: dict[tuple[int, int], int] = {}
    node_of: dict[int, int] = {}
    for branch in branches:
        above = branch.parent
        node = node_at[above.id, branch.begin] if above is not None else 0
        node_at[branch.id, branch.begin] = node
        rows = dict(zip(branch.depths, branch.rows, strict=True))
        joints = {child.begin for child in branch.children.values()}
        for depth in sorted(joints.union(rows) - {branch.begin}):
            parents.append(node)
            depths.append(depth)
            weights.append(float(rates[rows[depth]]) if depth in rows else 0.0)
            node = node_at[branch.id, depth] = len(parents) - 1
            if depth in rows and rows[depth] in live:
                node_of[live[rows[depth]]] = node
    ends = np.array(depths)
    above_ends = ends[np.maximum(parents, 0)]
    tree = PrefixTree(np.array(parents), ends - above_ends, np.array(weights))
    ids = sorted(node_of, key=node_of.__getitem__)
    kept = tuple((node_of[each], int(tree.lengths[node_of[each]])) for each in ids)
    return TreeForecast(tree, kept, tuple(ids))
