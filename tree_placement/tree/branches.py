"""Chains, stars and combs cut into paths, and the single-path problem of each."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import invalid
from tree_placement.cost import PrefillCost, SparseWeights
from tree_placement.path.placement import Placement, place
from tree_placement.tree.prefix_tree import PrefixTree, State, as_plain, checked_states
from tree_placement.tree.shape import TreeShape, classify


@dataclass(frozen=True, eq=False)
class Branch:
    """A part of a tree that is one path.

    Parameters
    ----------
    junction
        Node at whose end the path begins: the root for the spine.
    nodes
        Nodes of the path from the top down, without the junction, int64.
    """

    junction: int
    nodes: NDArray[np.int64]


def decompose(tree: PrefixTree) -> tuple[Branch, ...]:
    """Cut a chain, star or comb into its spine and the branches that leave it.

    The spine leads from the root to the last node with two children, or to the end of a tree
    that has none; it comes first, and may be empty. Each child of a spine node that is not on the
    spine opens a branch.

    Parameters
    ----------
    tree
        A chain, star or comb, see `classify`.

    Raises
    ------
    ValueError
        If the tree is a general one.

    Notes
    -----
    O(n) time and memory.

    Examples
    --------
    >>> tree = PrefixTree([-1, 0, 1, 2, 1, 4], [0, 4, 2, 3, 5, 1], [0, 1, 0, 2, 0, 5])
    >>> [(branch.junction, branch.nodes.tolist()) for branch in decompose(tree)]
    [(0, [1]), (1, [2, 3]), (1, [4, 5])]
    """
    if classify(tree) is TreeShape.GENERAL:
        raise invalid("tree", "a general tree", "a chain, a star or a comb", "use place_tree")
    forks = np.flatnonzero(np.diff(tree.child_offsets) > 1)
    last = forks[np.argmax(tree.depths[forks])] if forks.size else np.argmax(tree.depths)
    spine = _way_from_root(tree, int(last))
    on_spine = np.zeros(len(tree), dtype=np.bool_)
    on_spine[spine] = True
    branches = [Branch(0, spine[1:])]
    for junction in spine.tolist():
        for child in tree.children_of(junction).tolist():
            if not on_spine[child]:
                branches.append(Branch(junction, _way_down(tree, child)))
    return tuple(branches)


class BranchProblems:
    """The branches of a tree, each with the single-path problem that it is for itself."""

    def __init__(
        self,
        tree: PrefixTree,
        grid: int,
        cost: PrefillCost | None,
        fixed: Iterable[State],
        forbidden: Iterable[State],
        minimum_depth: int,
    ) -> None:
        self.tree = tree
        self._grid = grid
        self.cost = cost
        fixed = tuple(fixed)
        self._minimum_depth = minimum_depth
        self._standing = checked_states("fixed", tree, fixed)
        self.fixed = as_plain(fixed)
        self._forbidden = checked_states("forbidden", tree, forbidden)
        self.branches = decompose(tree)

    def solve(self, branch: int, budget: int) -> Placement:
        """Place states on one branch, at depths from the root, as if one stood at its junction."""
        path = self.branches[branch]
        return place(
            SparseWeights(self.tree.depths[path.nodes], self.tree.weights[path.nodes]),
            budget,
            grid=self._grid,
            cost=self.cost,
            fixed=np.concatenate((self._junction_depth(path), self._on(path, self._standing))),
            forbidden=self._on(path, self._forbidden),
            minimum_depth=self._minimum_depth,
        )

    def states(self, branch: int, depths: NDArray[np.int64]) -> list[State]:
        """Return states at `depths` from the root on one branch. O(depths log n) time."""
        nodes = self.branches[branch].nodes
        ends = self.tree.depths[nodes]
        at = np.searchsorted(ends, depths)
        within = depths - ends[at] + self.tree.lengths[nodes[at]]
        return list(zip(nodes[at].tolist(), within.tolist(), strict=True))

    def is_alone(
        self, branch: int, new_states: frozenset[State], depths: NDArray[np.int64]
    ) -> bool:
        """Return whether the branch's cost is true when its new states stand at `depths`.

        So it is where a state stands at its junction, an old one or one of `new_states` of the
        whole tree, and where no weight lies above its first state.
        """
        path = self.branches[branch]
        end = self._junction_depth(path)
        standing = self._standing[1][self._standing[0] == path.junction]
        junction = (path.junction, int(self.tree.lengths[path.junction]))
        if not end.size or junction in new_states or np.isin(end, standing).all():
            return True
        weighty = path.nodes[self.tree.weights[path.nodes] > 0.0]
        states = np.concatenate((depths, self._on(path, self._standing)))
        if not (weighty.size and states.size):
            return not weighty.size
        return bool(states.min() <= self.tree.depths[weighty[0]])

    def _junction_depth(self, path: Branch) -> NDArray[np.int64]:
        """Return the depth of the junction, or nothing at the root, which needs no state."""
        depths = self.tree.depths[[path.junction]]
        return depths[depths > 0]

    def _on(
        self, path: Branch, places: tuple[NDArray[np.int64], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        nodes, depths = places
        return depths[np.isin(nodes, path.nodes)]


def _way_from_root(tree: PrefixTree, node: int) -> NDArray[np.int64]:
    """Return the nodes from the root to `node`."""
    way = [node]
    while node > 0:
        node = int(tree.parents[node])
        way.append(node)
    return np.array(way[::-1])


def _way_down(tree: PrefixTree, node: int) -> NDArray[np.int64]:
    """Return `node` and the only nodes below it."""
    way = [node]
    while tree.children_of(node).size:
        node = int(tree.children_of(node)[0])
        way.append(node)
    return np.array(way)
