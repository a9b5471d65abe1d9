"""Prefix trees: nodes with edges of tokens, weights of overlaps, and what states on them cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import DEEPEST, as_depths, as_weights, invalid, too_deep
from tree_placement.cost import PrefillCost, check_sums

Scalar = TypeVar("Scalar", bound=np.generic)

State = tuple[int, int]
"""A node, and a depth in tokens within the edge into it: 1 to the edge's length, its end."""


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """A tree of prompts' tokens with the weight of the overlaps that end at its nodes.

    Parameters
    ----------
    parents
        Parent of each node, -1 for the root, which is node 0; parents come before their
        children. Stored as int64 of shape (n,).
    lengths
        Tokens of the edge into each node: 0 for the root, >= 1 for all others. Stored as int64
        of shape (n,).
    weights
        Weight of the overlaps that end where each node does: finite, >= 0. The root's costs
        nothing, because it ends at depth 0. Stored as float64 of shape (n,).

    Raises
    ------
    ValueError
        If there is no root or a second one, a parent comes after its child, parents form a
        cycle, the sizes differ, an edge is shorter than one token, a node is deeper than 2**53
        tokens, or a weight is bad.

    Notes
    -----
    The arrays are copied and cannot be written to. What is derived from them is computed once,
    in O(n) time and memory.

    Examples
    --------
    >>> tree = PrefixTree(parents=[-1, 0, 1, 1], lengths=[0, 4, 2, 3], weights=[0, 1, 9, 5])
    >>> tree.depths
    array([0, 4, 6, 7])
    >>> tree.children_of(1)
    array([2, 3])
    """

    parents: NDArray[np.int64]
    lengths: NDArray[np.int64]
    weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        parents = _frozen(as_depths("parents", self.parents))
        lengths = _frozen(as_depths("lengths", self.lengths))
        weights = _frozen(as_weights(self.weights).copy())
        for what, array in (("lengths", lengths), ("weights", weights)):
            if array.size != parents.size:
                got = f"{array.size} for {parents.size} parents"
                raise invalid(what, got, "one for each node", "pass arrays of one size")
        _check_parents(parents)
        _check_lengths(lengths)
        _check_depths(parents, lengths)
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def from_observations(
        cls,
        parents: Iterable[int] | NDArray[np.int64],
        lengths: Iterable[int] | NDArray[np.int64],
        observations: Iterable[tuple[int, int, float]],
    ) -> "ObservedTree":
        """Return a tree with a node wherever an overlap was observed, inside edges too.

        Parameters
        ----------
        parents, lengths
            As for `PrefixTree`.
        observations
            (node, depth within the edge into it, weight) of each overlap, the depth from 1 to
            the edge's length; those of one place add up. An overlap with the root alone costs
            nothing and is left out.

        Returns
        -------
        ObservedTree
            The finer tree, and the ways between its nodes and those given here.

        Raises
        ------
        ValueError
            As for `PrefixTree`, or if an observation lies off its edge or its weight is bad.

        Notes
        -----
        O(n + m log m) time for n nodes and m observations.

        Examples
        --------
        >>> observed = PrefixTree.from_observations([-1, 0], [0, 9], [(1, 4, 2.0), (1, 9, 1.0)])
        >>> observed.tree.lengths, observed.tree.weights
        (array([0, 4, 5]), array([0., 2., 1.]))
        >>> observed.coarse([(1, 3), (2, 2)])
        ((1, 3), (1, 6))
        """
        above = as_depths("parents", parents)
        coarse = cls(above, as_depths("lengths", lengths), np.zeros(above.size))
        return _observed(coarse, list(observations))

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Depth of each node's end in tokens, (n,)."""
        from tree_placement.tree import _arrays

        return _frozen(_arrays.depths(self.parents, self.lengths))

    @cached_property
    def heights(self) -> NDArray[np.int64]:
        """Edges on the longest way down from each node, (n,)."""
        from tree_placement.tree import _arrays

        return _frozen(_arrays.heights(self.parents))

    @cached_property
    def child_offsets(self) -> NDArray[np.int64]:
        """Where each node's children begin in `children`, and where the last ones end, (n + 1,)."""
        counts = np.bincount(self.parents[1:], minlength=self.parents.size)
        return _frozen(np.concatenate(([0], np.cumsum(counts))))

    @cached_property
    def children(self) -> NDArray[np.int64]:
        """Children of node 0, then of node 1, and so on, (n - 1,)."""
        from tree_placement.tree import _arrays

        return _frozen(_arrays.child_lists(self.parents, self.child_offsets))

    def children_of(self, node: int) -> NDArray[np.int64]:
        """Return the children of `node` in rising order."""
        return self.children[self.child_offsets[node] : self.child_offsets[node + 1]]

    @property
    def is_path(self) -> bool:
        """Whether no node has two children."""
        return bool((np.diff(self.child_offsets) <= 1).all())

    def __len__(self) -> int:
        """Return the number of nodes, the root included."""
        return int(self.parents.size)


@dataclass(frozen=True, eq=False)
class ObservedTree:
    """A tree with a node at each observation, and its places in the tree that was observed.

    Parameters
    ----------
    tree
        The finer tree, of n nodes.
    nodes
        Coarse node whose edge each fine node ends in, int64 of shape (n,).
    within
        Depth of each fine node's end within that edge, int64 of shape (n,).
    """

    tree: PrefixTree
    nodes: NDArray[np.int64]
    within: NDArray[np.int64]

    def coarse(self, states: Iterable[State]) -> tuple[State, ...]:
        """Return states of the fine tree as states of the tree observed. O(states) time."""
        lengths = self.tree.lengths
        return tuple(
            (int(self.nodes[node]), int(self.within[node] - lengths[node] + depth))
            for node, depth in states
        )

    def fine(self, states: Iterable[State]) -> tuple[State, ...]:
        """Return states of the tree observed as states of the fine tree. O(log n) time each.

        Raises
        ------
        ValueError
            If a state does not lie on the tree observed.
        """
        ends = np.lexsort((self.within, self.nodes))
        reach = int(self.within.max()) + 1
        keys = self.nodes[ends] * reach + self.within[ends]
        found = []
        for node, depth in states:
            at = int(np.searchsorted(keys, node * reach + depth))
            end = int(ends[min(at, ends.size - 1)])
            if at == ends.size or self.nodes[end] != node or depth < 1:
                fix = "leave out states that are not on the tree"
                raise invalid("states", (node, depth), "a place on the tree observed", fix)
            offset = self.within[end] - self.tree.lengths[end]
            found.append((end, int(depth - offset)))
        return tuple(found)


@dataclass(frozen=True, eq=False)
class TreePlacement:
    """States chosen on a tree, and what the tree then costs.

    Parameters
    ----------
    states
        The new states, sorted: pairs of a node and the depth in tokens within the edge into it,
        from 1 to the edge's length. States that existed before (``fixed``) are not among them.
    cost
        `tree_recompute` with the new and the fixed states together; it holds no price.
    """

    states: tuple[State, ...]
    cost: float


def tree_recompute(
    tree: PrefixTree, states: Iterable[State], *, cost: PrefillCost | None = None
) -> float:
    """Return the sum over nodes v of w_v (F(t_v) - F(l_v)).

    t_v is the depth of v's end, and l_v that of the deepest state at or above it on the way from
    the root, or 0 where there is none. The weights are summed as given.

    Parameters
    ----------
    tree
        The tree with its weights.
    states
        Pairs of a node and the depth in tokens within the edge into it; in any order.
    cost
        F; counts tokens if None.

    Raises
    ------
    ValueError
        If a state does not lie on the tree, or the weights' sums overflow.

    Notes
    -----
    O(n + m) time and memory for n nodes and m states. Weights stand at nodes' ends, so of the
    states in one edge only the deepest counts.

    Examples
    --------
    >>> tree = PrefixTree(parents=[-1, 0, 1, 1], lengths=[0, 4, 2, 3], weights=[0, 1, 9, 5])
    >>> tree_recompute(tree, [])
    93.0
    >>> tree_recompute(tree, [(1, 4), (2, 1)])
    24.0
    """
    from tree_placement.tree import _arrays

    nodes, depths = checked_states("states", tree, states)
    deepest = np.full(len(tree), -1, dtype=np.int64)
    np.maximum.at(deepest, nodes, depths)
    prefill = PrefillCost() if cost is None else cost
    check_sums(tree.weights, int(tree.depths.max()), prefill)
    serving = _arrays.serving(tree.parents, deepest)
    return float(np.dot(tree.weights, prefill(tree.depths) - prefill(serving)))


def checked_states(
    what: str, tree: PrefixTree, states: Iterable[State]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the nodes of `states` and their depths from the root; ValueError off the tree."""
    pairs = np.asarray(list(states))
    if not pairs.size:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        got = f"{pairs.dtype} of shape {pairs.shape}"
        raise invalid(what, got, "pairs of whole numbers", "pass (node, depth within its edge)")
    nodes, within = pairs.astype(np.int64).T
    off_tree = (nodes < 0) | (nodes >= len(tree))
    lengths = tree.lengths[np.where(off_tree, 0, nodes)]
    bad = np.flatnonzero(off_tree | (within < 1) | (within > lengths))
    if bad.size:
        node, depth = int(nodes[bad[0]]), int(within[bad[0]])
        need = f"a node below {len(tree)}"
        if not off_tree[bad[0]]:
            need = f"1 <= depth <= {lengths[bad[0]]} in the edge into node {node}"
        raise invalid(what, (node, depth), need, "leave out states that are not on the tree")
    return nodes, tree.depths[tree.parents[nodes]] + within


def as_plain(states: Iterable[State]) -> tuple[State, ...]:
    """Return checked states in Python's integers, so that arrays of these and others stay whole."""
    return tuple((int(node), int(depth)) for node, depth in states)


def _frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    array.setflags(write=False)
    return array


def _check_parents(parents: NDArray[np.int64]) -> None:
    if not parents.size or parents[0] != -1:
        got = parents[0] if parents.size else "no node"
        raise invalid("parents[0]", got, "-1, the root", "put the root first")
    rest = parents[1:]
    good = (rest >= 0) & (rest < np.arange(1, parents.size))
    if good.all():
        return
    node = int(np.argmin(good)) + 1
    parent = int(parents[node])
    what = f"parents[{node}]"
    if parent == -1:
        raise invalid(what, parent, "one root, node 0", "join the trees under one root")
    if not -1 < parent < parents.size:
        raise invalid(what, parent, f"0 <= parent < {parents.size}", "name a node of this tree")
    if _is_on_cycle(parents, node):
        raise invalid(what, parent, "no cycle", "break it, so that every node leads to the root")
    raise invalid(what, parent, "a parent before its child", "sort the nodes from the root down")


def _is_on_cycle(parents: NDArray[np.int64], node: int) -> bool:
    """Return whether the way up from `node` never ends."""
    for _ in range(parents.size):
        node = int(parents[node])
        if not 0 <= node < parents.size:
            return False
    return True


def _check_lengths(lengths: NDArray[np.int64]) -> None:
    if lengths[0] != 0:
        raise invalid("lengths[0]", lengths[0], "0", "the root ends at depth 0")
    short = np.flatnonzero(lengths[1:] < 1)
    if short.size:
        node = int(short[0]) + 1
        fix = "leave out edges without tokens"
        raise invalid(f"lengths[{node}]", lengths[node], "a whole number >= 1", fix)


def _check_depths(parents: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
    # A sum in float64 may round down to 2**53, but not to less.
    if lengths.sum(dtype=np.float64) < DEEPEST:
        return
    depths = lengths.tolist()
    for node, parent in enumerate(parents[1:].tolist(), start=1):
        depths[node] += depths[parent]
        if depths[node] > DEEPEST:
            raise too_deep(f"depth of node {node}", depths[node])


def _observed(coarse: PrefixTree, observations: list[tuple[int, int, float]]) -> ObservedTree:
    """Cut the edges of `coarse` at the observations and put their weights there."""
    as_weights([weight for *_, weight in observations])
    observations = [seen for seen in observations if tuple(seen[:2]) != (0, 0)]
    checked_states("observations", coarse, [(node, depth) for node, depth, _ in observations])
    total: dict[State, float] = {
        (node, int(coarse.lengths[node])): 0.0 for node in range(len(coarse))
    }
    for node, depth, weight in observations:
        total[node, depth] = total.get((node, depth), 0.0) + weight
    nodes, within = np.array(sorted(total), dtype=np.int64).T
    opens_edge = np.concatenate(([True], nodes[1:] != nodes[:-1]))
    ends = np.flatnonzero(np.concatenate((opens_edge[1:], [True])))
    before = np.arange(nodes.size) - 1
    tree = PrefixTree(
        parents=np.where(opens_edge & (nodes > 0), ends[coarse.parents[nodes]], before),
        lengths=within - np.where(opens_edge, 0, within[before]),
        weights=np.array([total[place] for place in sorted(total)]),
    )
    return ObservedTree(tree, _frozen(nodes), _frozen(within))
