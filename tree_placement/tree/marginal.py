"""What each state on a tree saves, and what a further one would: the values of eviction, admission.

Weight falls to the nearest state above it, so a state at depth c whose nearest one above is at
depth a saves ``D (F(c) - F(a))``, where D, the *demand* at its place, is the weight at or below it
that no state below it serves. The same product is what a candidate would add. A state that
comes or goes changes the demand only on the way up to the next state.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from tree_placement._check import invalid, is_whole
from tree_placement.cost import PrefillCost, check_new_weight
from tree_placement.tree.prefix_tree import PrefixTree, State, checked_states, tree_recompute


class MarginalValues:
    """A set of states on a prefix tree, with what each is worth given all others.

    Parameters
    ----------
    tree
        The tree, whose weights are the forecast.
    states
        Pairs of a node and the depth in tokens within the edge into it, in any order.
    cost
        F; counts tokens if None.

    Raises
    ------
    ValueError
        If a state does not lie on the tree, or is given twice.

    Notes
    -----
    With ``demand[v]`` the weight at or below the end of node v that no state below v serves,

        demand[v] = w_v + sum over children c, without a state in their edge, of demand[c].

    Let e be the edges from a place up to the nearest state above it, at most the height of the
    tree. Every method is O(e) time, plus O(log m) to find a place among the m states of its edge
    (to put one there moves the deeper ones of that edge); memory is O(n) for n nodes. Sums of whole
    numbers below 2^53 are exact; of others the rounding of each change stays.

    Examples
    --------
    >>> tree = PrefixTree(parents=[-1, 0, 1, 1], lengths=[0, 4, 2, 3], weights=[0, 1, 9, 5])
    >>> values = MarginalValues(tree, [(2, 2)])
    >>> values.cost, values.saving((2, 2)), values.gain((1, 4))
    (39.0, 54.0, 24.0)

    A state at the junction serves the second branch, and takes of the first what lies above it:

    >>> values.add((1, 4))
    >>> values.cost, values.saving((2, 2)), values.saving((1, 4))
    (15.0, 18.0, 24.0)
    """

    def __init__(
        self, tree: PrefixTree, states: Iterable[State] = (), *, cost: PrefillCost | None = None
    ) -> None:
        self._tree = tree
        self._prefill = PrefillCost() if cost is None else cost
        self._parents: list[int] = tree.parents.tolist()
        self._lengths: list[int] = tree.lengths.tolist()
        self._depths: list[int] = tree.depths.tolist()
        self._weights: list[float] = tree.weights.tolist()
        self._in_edge: dict[int, list[int]] = {}
        self._deepest: list[float] = [0.0] * len(tree)
        for state in list(states):
            node, depth = self._checked_free(state)
            self._put(node, depth)
        self._demand: list[float] = self._weights.copy()
        for node in range(len(tree) - 1, 0, -1):
            if not self._deepest[node]:
                self._demand[self._parents[node]] += self._demand[node]
        self._cost = tree_recompute(tree, self.states, cost=cost)

    @property
    def states(self) -> tuple[State, ...]:
        """The states, sorted. O(m log m) time."""
        nodes = sorted(self._in_edge)
        return tuple((node, depth) for node in nodes for depth in self._in_edge[node])

    @property
    def cost(self) -> float:
        """Expected recompute with these states and weights, as `tree_recompute` has it."""
        return self._cost

    def saving(self, state: State) -> float:
        """Return by how much the cost would rise if `state` alone went.

        Raises
        ------
        ValueError
            If there is no such state.
        """
        node, depth = self._checked_present(state)
        return self._value(node, depth)

    def gain(self, candidate: State) -> float:
        """Return by how much the cost would fall if a state were added at `candidate`.

        Where there is one already that is nothing.

        Raises
        ------
        ValueError
            If the candidate does not lie on the tree.
        """
        node, depth = self._checked(candidate)
        return 0.0 if self._is_present(node, depth) else self._value(node, depth)

    def add(self, state: State) -> None:
        """Add a state, which takes its demand from those above.

        Raises
        ------
        ValueError
            If it does not lie on the tree, or is there already.
        """
        node, depth = self._checked_free(state)
        self._cost -= self._value(node, depth)
        if not self._deepest[node]:
            self._hand_up(node, -self._demand[node])
        self._put(node, depth)

    def remove(self, state: State) -> None:
        """Remove a state, whose demand falls to those above.

        Raises
        ------
        ValueError
            If there is no such state.
        """
        node, depth = self._checked_present(state)
        self._cost += self._value(node, depth)
        in_edge = self._in_edge[node]
        in_edge.remove(depth)
        if in_edge:
            self._deepest[node] = self._prefill_at(node, in_edge[-1])
            return
        del self._in_edge[node]
        self._deepest[node] = 0.0
        self._hand_up(node, self._demand[node])

    def set_weight(self, node: int, weight: float) -> None:
        """Let the overlaps that end where `node` does weigh `weight`; the tree stays as it is.

        Raises
        ------
        ValueError
            If there is no such node, or the weight is negative, or too large for finite sums.
        """
        if not (is_whole(node) and 0 <= node < len(self._parents)):
            need = f"a whole number, 0 <= node < {len(self._parents)}"
            raise invalid("node", node, need, "name a node of this tree")
        node = int(node)
        check_new_weight(weight, self._depths[node], self._prefill)
        change = weight - self._weights[node]
        self._weights[node] = weight
        serving = self._deepest[node] or self._above_edge(node)
        self._cost += change * (self._prefill_at(node, self._lengths[node]) - serving)
        self._demand[node] += change
        if not self._deepest[node]:
            self._hand_up(node, change)

    def _value(self, node: int, depth: int) -> float:
        """Return demand times the prefill time to the nearest state above."""
        in_edge = self._in_edge.get(node, ())
        if in_edge and in_edge[-1] > depth:
            return 0.0
        place = bisect_left(in_edge, depth)
        above = self._prefill_at(node, in_edge[place - 1]) if place else self._above_edge(node)
        return self._demand[node] * (self._prefill_at(node, depth) - above)

    def _above_edge(self, node: int) -> float:
        """Return F at the nearest state above the edge into `node`, or 0 where there is none."""
        while node:
            node = self._parents[node]
            if self._deepest[node]:
                return self._deepest[node]
        return 0.0

    def _hand_up(self, node: int, demand: float) -> None:
        """Add `demand` above the edge into `node`, as far as the nearest state."""
        while node:
            node = self._parents[node]
            self._demand[node] += demand
            if self._deepest[node]:
                return

    def _put(self, node: int, depth: int) -> None:
        in_edge = self._in_edge.setdefault(node, [])
        insort(in_edge, depth)
        self._deepest[node] = self._prefill_at(node, in_edge[-1])

    def _prefill_at(self, node: int, depth: int) -> float:
        """Return F at a depth within the edge into `node`; above 0 but at the root."""
        return float(self._prefill(self._depths[node] - self._lengths[node] + depth))

    def _is_present(self, node: int, depth: int) -> bool:
        in_edge = self._in_edge.get(node, ())
        place = bisect_left(in_edge, depth)
        return place < len(in_edge) and in_edge[place] == depth

    def _checked(self, state: State) -> State:
        """Return a place on the tree in Python's integers, which do not overflow."""
        node, depth = state
        is_place = is_whole(node) and is_whole(depth)
        if not (is_place and 0 < node < len(self._parents) and 1 <= depth <= self._lengths[node]):
            checked_states("state", self._tree, [state])
        return int(node), int(depth)

    def _checked_free(self, state: State) -> State:
        node, depth = self._checked(state)
        if self._is_present(node, depth):
            raise invalid("state", (node, depth), "a place without a state", "add it once")
        return node, depth

    def _checked_present(self, state: State) -> State:
        node, depth = state
        if not self._is_present(node, depth):
            raise invalid("state", (node, depth), "a state of this set", "add it first")
        return int(node), int(depth)
