"""Where to keep states on a tree that grows and whose weights change: mended at each change."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from tree_placement._check import (
    DEEPEST,
    check_at_least,
    check_count,
    invalid,
    is_whole,
    too_deep,
)
from tree_placement.cost import PrefillCost, check_new_weight
from tree_placement.tree._candidates import TreeSites, tree_sites
from tree_placement.tree.prefix_tree import PrefixTree, State, TreePlacement, tree_recompute

if TYPE_CHECKING:
    from tree_placement.tree._records import Mended, Records


class PricedTree:
    """A growing tree whose priced placement is mended at each change, not solved anew.

    Parameters
    ----------
    price
        What a new state must save to be worth its slot: finite, >= 0.
    tree
        The tree to begin with; the root alone if None.
    grid, cost, fixed, forbidden, minimum_depth
        As for `place_tree_priced`. Nodes that are added have no fixed or forbidden states.

    Raises
    ------
    ValueError
        As for `place_tree_priced`.

    Notes
    -----
    The placement is always one of least total, of the fewest states, as `place_tree_priced` finds
    it; see its Notes for the objective. Where sums are not exact in float64 (whole numbers) the two
    may decide a tie differently, and their totals agree to rounding.

    Each node keeps the entries (points where the slope changes) of its subtree's cost as a function
    of the state above it: at most one for each edge on its way to the root, and one for each state
    in its subtree that depends on that one.

    A change takes time in proportion to the entries on the node's way to the root, so O(D^2) at
    most for a node D edges deep, whatever the number of children, and ends early where a
    subtree's cost changes by a constant only: on a long chain some states further up. Only where
    no state pays does it go all the way. Memory is O(n + all entries), at most n times the mean
    D. Adding a leaf is amortised: arrays double when they are full.

    Examples
    --------
    >>> priced = PricedTree(price=10.0)
    >>> trunk = priced.add_leaf(0, length=4, weight=1.0)
    >>> question = priced.add_leaf(trunk, length=2, weight=9.0)
    >>> priced.placement()
    TreePlacement(states=((2, 2),), cost=4.0)
    >>> priced.set_weight(question, 0.5)
    >>> priced.total, priced.state_above(question)
    (7.0, None)
    """

    def __init__(
        self,
        price: float,
        tree: PrefixTree | None = None,
        *,
        grid: int = 1,
        cost: PrefillCost | None = None,
        fixed: Iterable[State] = (),
        forbidden: Iterable[State] = (),
        minimum_depth: int = 0,
    ) -> None:
        check_at_least("price", price, 0.0, "pass what a state must save")
        tree = _root_alone() if tree is None else tree
        sites = tree_sites(tree, grid, cost, fixed, forbidden, minimum_depth)
        self._price = float(price)
        self._grid = sites.grid
        self._minimum_depth = sites.minimum_depth
        self._cost = sites.cost
        self._fixed = sites.fixed
        self._nodes = len(tree)
        self._mended = self._built(sites)

    def __len__(self) -> int:
        """Return the number of nodes, the root included."""
        return self._nodes

    @property
    def total(self) -> float:
        """Recompute plus the price of each new state. O(1) time."""
        from tree_placement.tree import _records as records

        numbers = self._mended.numbers
        return float(numbers[records.TOTAL] + numbers[records.TOTAL_REST])

    @property
    def state_count(self) -> int:
        """Number of new states. O(1) time."""
        from tree_placement.tree import _records as records

        return int(self._mended.numbers[records.COUNT])

    def add_leaf(self, parent: int, length: int, weight: float = 0.0) -> int:
        """Add a node below `parent`, mend the placement, and return the node.

        Parameters
        ----------
        parent
            A node of the tree.
        length
            Tokens of the edge into the new node, >= 1.
        weight
            Weight of the overlaps that end there: finite, >= 0.

        Raises
        ------
        ValueError
            If an argument is out of its range, or the node would be deeper than 2**53 tokens;
            nothing has changed then.
        """
        from tree_placement.tree import _mended as kernels

        parent = self._checked_node("parent", parent)
        length = check_count("length", length, 1, "leave out edges without tokens")
        node = self._nodes
        above = int(self._mended.nodes[parent]["depth"])
        depth = above + length
        if depth > DEEPEST:
            raise too_deep("length", depth)
        check_new_weight(weight, depth, self._cost)
        self._make_room(parent)
        candidate = depth // self._grid * self._grid
        if candidate <= above or candidate < self._minimum_depth:
            candidate = -1
        row = self._mended.nodes[node]
        row["parent"], row["depth"], row["weight"] = parent, depth, weight
        row["candidate_depth"], row["standing_depth"] = candidate, -1
        row["prefill"], row["standing"] = self._cost(depth), -1.0
        row["candidate"] = self._cost(candidate) if candidate >= 0 else -1.0
        self._nodes += 1
        self._finish(kernels.add_leaf(self._mended, node))
        return node

    def set_weight(self, node: int, weight: float) -> None:
        """Change the weight of `node` and mend the placement.

        Raises
        ------
        ValueError
            If there is no such node, or `weight` is negative or not finite.
        """
        from tree_placement.tree import _mended as kernels

        node = self._checked_node("node", node)
        check_new_weight(weight, int(self._mended.nodes[node]["depth"]), self._cost)
        self._finish(kernels.set_weight(self._mended, node, float(weight)))

    def state_above(self, node: int) -> State | None:
        """Return the deepest state at or above the end of `node`, new or fixed, None for none.

        O(depth of the node in edges) time.

        Raises
        ------
        ValueError
            If there is no such node.
        """
        from tree_placement.tree import _mended as kernels

        node = self._checked_node("node", node)
        nodes = self._mended.nodes
        found, depth = kernels.state_above(nodes, node)
        return (found, depth - int(nodes[nodes[found]["parent"]]["depth"])) if found else None

    def placement(self) -> TreePlacement:
        """Return all new states, and the cost with the fixed ones. O(n) time."""
        from tree_placement.tree import _priced

        nodes = self._mended.nodes[: self._nodes]
        columns = [nodes[name].copy() for name in ("parent", "standing", "candidate", "limit")]
        chosen = _priced.chosen_nodes(*columns)
        above = nodes["depth"][nodes["parent"][chosen]]
        within = nodes["candidate_depth"][chosen] - above
        states = tuple(zip(chosen.tolist(), within.tolist(), strict=True))
        recompute = tree_recompute(self.tree(), self._fixed + states, cost=self._cost)
        return TreePlacement(states, recompute)

    def tree(self) -> PrefixTree:
        """Return the tree as it is now. O(n) time."""
        nodes = self._mended.nodes[: self._nodes]
        parents = nodes["parent"].astype(np.int64)
        above = np.where(parents >= 0, nodes["depth"][parents], 0)
        return PrefixTree(parents, nodes["depth"] - above, nodes["weight"])

    def _checked_node(self, what: str, node: int) -> int:
        if not (is_whole(node) and 0 <= node < self._nodes):
            need = f"a whole number from 0 to {self._nodes - 1}"
            raise invalid(what, node, need, "name a node of this tree")
        return int(node)

    def _built(self, sites: TreeSites) -> "Mended":
        """Return the arrays of a whole tree, solved."""
        from tree_placement.tree import _mended as kernels
        from tree_placement.tree import _records as records
        from tree_placement.tree import _sites

        nodes = _rows(sites)
        mended = records.Mended(
            nodes=nodes,
            entries=np.zeros(4 * nodes.size, dtype=records.ENTRY),
            shapes=np.zeros((4, 0), dtype=records.ENTRY),
            sites=_sites.empty_sites(nodes.size),
            numbers=np.zeros(6),
            marks=np.zeros(5, dtype=np.int64),
        )
        mended.numbers[records.PRICE] = self._price
        highest = kernels.lay_all(mended, self._nodes)
        mended = mended._replace(shapes=_shapes(highest))
        node = kernels.build(mended, self._nodes - 1)
        while node >= 0:
            mended = self._with_entries(mended, 0)
            node = kernels.build(mended, node)
        return mended

    def _finish(self, lacking: int) -> None:
        """Give a change the room for entries that it lacks until it is done."""
        from tree_placement.tree import _mended as kernels

        while lacking:
            self._mended = self._with_entries(self._mended, lacking)
            lacking = kernels.go_up(self._mended)

    def _with_entries(self, mended: "Mended", lacking: int) -> "Mended":
        """Return `mended` with its entries moved, without gaps, to a larger place."""
        from tree_placement.tree import _mended as kernels
        from tree_placement.tree import _records as records

        used = int(mended.nodes["entries"].sum())
        entries = np.zeros(4 * used + lacking + 64, dtype=records.ENTRY)
        mended.marks[records.USED] = kernels.move(
            mended.nodes, self._nodes, mended.entries, entries
        )
        return mended._replace(entries=entries)

    def _make_room(self, parent: int) -> None:
        """Make room for a node below `parent`, doubling what is full."""
        from tree_placement.tree._sites import grown

        mended = self._mended
        if self._nodes == mended.nodes.size:
            nodes = np.concatenate((mended.nodes, np.zeros_like(mended.nodes)))
            mended = mended._replace(nodes=nodes, sites=grown(mended.sites))
        highest = int(mended.sites.level[mended.nodes[parent]["top"]]) + 1
        if highest + _SPARE > mended.shapes.shape[1]:
            shapes = _shapes(2 * highest)
            shapes[:, : mended.shapes.shape[1]] = mended.shapes
            mended = mended._replace(shapes=shapes)
        self._mended = mended


_SPARE = 3
"""Entries that a shape may have beyond one for each site on its way."""


def _root_alone() -> PrefixTree:
    return PrefixTree(np.array([-1]), np.array([0]), np.array([0.0]))


def _rows(sites: TreeSites) -> "Records":
    """Return the nodes of a whole tree, not yet decided."""
    from tree_placement.tree._records import NODE

    rows = np.zeros(len(sites.tree), dtype=NODE)
    rows["parent"], rows["depth"] = sites.tree.parents, sites.tree.depths
    rows["weight"], rows["prefill"] = sites.tree.weights, sites.prefill
    rows["standing_depth"], rows["standing"] = sites.standing, sites.standing_prefill
    rows["candidate_depth"], rows["candidate"] = sites.candidates, sites.candidate_prefill
    return rows


def _shapes(highest: int) -> "Records":
    from tree_placement.tree._records import ENTRY

    return np.zeros((4, highest + _SPARE), dtype=ENTRY)
