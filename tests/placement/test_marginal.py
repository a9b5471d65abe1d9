"""Marginal values against the whole cost computed anew, while states and weights change."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from tree_placement import PrefillCost
from tree_placement.tree.marginal import MarginalValues
from tree_placement.tree.prefix_tree import PrefixTree, State, tree_recompute

CONVEX = PrefillCost(linear=0.5, quadratic=2.0)


class SlowValues:
    """A tree, weights and states; every value is the difference of two whole costs."""

    def __init__(self, draw: random.Random, nodes: int, weight: Callable[[], float]) -> None:
        self.parents = [-1, *(draw.randrange(node) for node in range(1, nodes))]
        self.lengths = [0, *(draw.randrange(1, 7) for _ in range(1, nodes))]
        self.weights = [weight() for _ in range(nodes)]
        self.cost = draw.choice((PrefillCost(), CONVEX))
        self.states: set[State] = set()

    def place(self, draw: random.Random) -> State:
        node = draw.randrange(1, len(self.parents))
        return node, draw.randrange(1, self.lengths[node] + 1)

    def prefill(self, depth: int) -> float:
        return self.cost.linear * depth + self.cost.quadratic * depth**2 / 2

    def recompute(self, states: set[State]) -> float:
        total = 0.0
        for end, weight in enumerate(self.weights):
            way = []
            node = end
            while node > 0:
                way.append(node)
                node = self.parents[node]
            depth, serving = 0, 0
            for node in reversed(way):
                for within in range(1, self.lengths[node] + 1):
                    depth += 1
                    if (node, within) in states:
                        serving = depth
            total += weight * (self.prefill(depth) - self.prefill(serving))
        return total

    def saving(self, state: State) -> float:
        return self.recompute(self.states - {state}) - self.recompute(self.states)

    def gain(self, candidate: State) -> float:
        return self.recompute(self.states) - self.recompute(self.states | {candidate})

    def tree(self) -> PrefixTree:
        return PrefixTree(self.parents, self.lengths, self.weights)


def largest_difference(
    kind: type[MarginalValues], seed: int, changes: int, whole_numbers: bool
) -> float:
    """Change states and weights at random; return the worst error of a value, in shares of cost."""
    draw = random.Random(seed)

    def weight() -> float:
        return float(draw.choice((0, 0, 1, 2, 9))) if whole_numbers else draw.random() * 3

    slow = SlowValues(draw, draw.randrange(2, 16), weight)
    slow.states = {slow.place(draw) for _ in range(draw.randrange(4))}
    values = kind(slow.tree(), sorted(slow.states), cost=slow.cost)
    worst = 0.0
    for _ in range(changes):
        place = slow.place(draw)
        change = draw.choice(("add", "add", "remove", "weight"))
        if change == "add" and place not in slow.states:
            slow.states.add(place)
            values.add(place)
        elif change == "remove" and slow.states:
            gone = draw.choice(sorted(slow.states))
            slow.states.remove(gone)
            values.remove(gone)
        elif change == "weight":
            node, weighs = draw.randrange(len(slow.weights)), weight()
            slow.weights[node] = weighs
            values.set_weight(node, weighs)
        assert values.states == tuple(sorted(slow.states))
        scale = max(slow.recompute(set()), 1.0)
        state = draw.choice(sorted(slow.states)) if slow.states else None
        pairs = [(values.cost, slow.recompute(slow.states))]
        pairs += [(values.gain(each), slow.gain(each)) for each in (place, slow.place(draw))]
        pairs += [(values.saving(state), slow.saving(state))] if state else []
        worst = max(worst, *(abs(found - truth) / scale for found, truth in pairs))
    return worst


@pytest.mark.parametrize("block", range(4))
def test_values_equal_differences_of_costs(block: int) -> None:
    for seed in range(block * 40, (block + 1) * 40):
        assert largest_difference(MarginalValues, seed, changes=80, whole_numbers=True) == 0.0, seed


@pytest.mark.parametrize("seed", range(5))
def test_real_weights_round_little(seed: int) -> None:
    assert largest_difference(MarginalValues, seed, changes=300, whole_numbers=False) < 1e-12


class HandsUpOneEdge(MarginalValues):
    def _hand_up(self, node: int, demand: float) -> None:
        if node:
            self._demand[self._parents[node]] += demand


class HandsUpToTheRoot(MarginalValues):
    def _hand_up(self, node: int, demand: float) -> None:
        while node:
            node = self._parents[node]
            self._demand[node] += demand


class ServesFromTheEdgeAbove(MarginalValues):
    def _above_edge(self, node: int) -> float:
        return self._deepest[self._parents[node]] if node else 0.0


class OverlooksDeeperStates(MarginalValues):
    def _value(self, node: int, depth: int) -> float:
        in_edge = self._in_edge.get(node, [])
        above = max((each for each in in_edge if each < depth), default=0)
        serving = self._prefill_at(node, above) if above else self._above_edge(node)
        return self._demand[node] * (self._prefill_at(node, depth) - serving)


class OverlooksWeights(MarginalValues):
    def set_weight(self, node: int, weight: float) -> None:
        self._weights[node] = weight


@pytest.mark.parametrize(
    "kind",
    [
        HandsUpOneEdge,
        HandsUpToTheRoot,
        ServesFromTheEdgeAbove,
        OverlooksDeeperStates,
        OverlooksWeights,
    ],
)
def test_a_wrong_version_would_be_seen(kind: type[MarginalValues]) -> None:
    assert max(largest_difference(kind, seed, 80, whole_numbers=True) for seed in range(5)) > 0.0


@pytest.mark.parametrize("reach", [30, 100_000])
def test_a_large_tree_agrees_with_its_recompute(reach: int) -> None:
    """Nodes hang below one of the `reach` nodes before them: a deep tree, and a flat one."""
    rng = np.random.default_rng(reach)
    nodes = 3_000
    parents = [-1, *(int(rng.integers(max(0, node - reach), node)) for node in range(1, nodes))]
    lengths = np.concatenate(([0], rng.integers(1, 600, nodes - 1)))
    weights = rng.integers(0, 5, nodes).astype(float)
    values = MarginalValues(PrefixTree(parents, lengths, weights))
    states: set[State] = set()
    for step in range(3_000):
        node = int(rng.integers(1, nodes))
        place = (node, int(rng.integers(1, lengths[node] + 1)))
        if step % 3 == 0 and len(states) > 200:
            place = sorted(states)[int(rng.integers(len(states)))]
            states.remove(place)
            worth = values.saving(place)
            values.remove(place)
        elif step % 5 == 0:
            weights[node] = rng.integers(0, 5)
            values.set_weight(node, weights[node])
            continue
        elif place not in states:
            states.add(place)
            worth = values.gain(place)
            values.add(place)
        if step % 20 == 0:
            tree = PrefixTree(parents, lengths, weights)
            assert values.cost == tree_recompute(tree, states)
            other = tree_recompute(tree, states ^ {place})
            assert abs(other - values.cost) == worth
    assert len(states) > 200


def test_values_of_a_given_state_depend_on_its_neighbours() -> None:
    values = MarginalValues(PrefixTree([-1, 0, 1], [0, 10, 10], [0.0, 0.0, 1.0]))
    values.add((2, 10))
    assert (values.saving((2, 10)), values.gain((1, 10))) == (20.0, 0.0)
    values.remove((2, 10))
    values.add((1, 10))
    assert (values.gain((2, 10)), values.gain((1, 10)), values.cost) == (10.0, 0.0, 10.0)


TREE = PrefixTree([-1, 0, 1], [0, 4, 3], [0, 1, 2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MarginalValues(TREE, [(1, 5)]), r"state: got \(1, 5\); need 1 <= depth <= 4 in "),
        (lambda: MarginalValues(TREE, [(1, 2)] * 2), r"state: got \(1, 2\); need a place without"),
        (lambda: MarginalValues(TREE).gain((3, 1)), r"state: got \(3, 1\); need a node below 3; "),
        (lambda: MarginalValues(TREE).gain((0, 1)), r"state: got \(0, 1\); need 1 <= depth <= 0 "),
        (lambda: MarginalValues(TREE).add((2, 0)), r"state: got \(2, 0\); need 1 <= depth <= 3 "),
        (lambda: MarginalValues(TREE).saving((2, 1)), r"state: got \(2, 1\); need a state of this"),
        (lambda: MarginalValues(TREE).remove((9, 9)), r"state: got \(9, 9\); need a state of this"),
        (lambda: MarginalValues(TREE).set_weight(3, 1), r"node: got 3; need a whole number, 0 <= "),
        (lambda: MarginalValues(TREE).set_weight(1.5, 1.0), r"node: got 1.5; need a whole number"),
        (
            lambda: MarginalValues(TREE).add((1, 1.5)),
            r"state: got float64 of shape \(1, 2\); need ",
        ),
        (lambda: MarginalValues(TREE).gain((1, 1.5)), r"state: got float64 of shape \(1, 2\); nee"),
        (lambda: MarginalValues(TREE, [(1, 1.5)]), r"state: got float64 of shape \(1, 2\); need "),
        (lambda: MarginalValues(TREE).set_weight(1, 1e300), r"weight: got 1e\+300 at depth 4; ne"),
        (lambda: MarginalValues(TREE).set_weight(1, -1), r"weight: got -1; need a finite number"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
