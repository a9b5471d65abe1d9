"""Small random trees with every set of new states tried: the truth for solvers on trees.

All numbers are whole, so that costs and ties compare exactly.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tree_placement.cost import PrefillCost
from tree_placement.tree import PrefixTree

CONVEX = PrefillCost(linear=1.0, quadratic=2.0)
MAXIMUM_PLACES = 14


class TreeCase:
    """A random problem on a tree of at most ten nodes, with its options.

    `allowed` lists the (node, depth within its edge) where a new state may stand, at most
    `MAXIMUM_PLACES` of them; `budget` is at most 5.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        nodes = int(rng.integers(1, 11, 2).max())
        reach = int(rng.choice([1, 2, 9]))
        self.parents = [-1] + [int(rng.integers(max(0, v - reach), v)) for v in range(1, nodes)]
        self.lengths = [0, *rng.integers(1, rng.choice([2, 3, 6]), nodes - 1).tolist()]
        self.weights = (rng.integers(0, 5, nodes) * rng.integers(0, 2, nodes)).tolist()
        self.grid = int(rng.choice([1, 1, 1, 2, 3]))
        self.cost = CONVEX if rng.integers(2) else PrefillCost()
        self.minimum_depth = int(rng.choice([0, 0, 0, 4]))
        self.budget = int(rng.integers(0, 6))
        self.price = float(rng.integers(0, 16))
        places = [(v, d) for v in range(nodes) for d in range(1, self.lengths[v] + 1)]
        places = [places[i] for i in rng.permutation(len(places))]
        self.fixed = places[: rng.choice([0, 0, 1, 2])]
        self.forbidden = places[::-1][: rng.choice([0, 0, 1, 4])]
        open_places = [place for place in places if self._is_open(place)]
        self.forbidden += open_places[MAXIMUM_PLACES:]
        self.allowed = sorted(open_places[:MAXIMUM_PLACES])

    def _is_open(self, place: tuple[int, int]) -> bool:
        depth = self.depth(place)
        on_grid = depth % self.grid == 0 and depth >= self.minimum_depth
        return on_grid and place not in self.fixed and place not in self.forbidden

    def depth(self, place: tuple[int, int]) -> int:
        """Return the depth of a place from the root."""
        node, depth = place
        while (node := self.parents[node]) > 0:
            depth += self.lengths[node]
        return depth

    def tree(self) -> PrefixTree:
        return PrefixTree(self.parents, self.lengths, self.weights)

    def keywords(self) -> dict:
        return {
            "grid": self.grid,
            "cost": self.cost,
            "fixed": self.fixed,
            "forbidden": self.forbidden,
            "minimum_depth": self.minimum_depth,
        }

    def prefill(self, depth: int) -> float:
        return self.cost.linear * depth + self.cost.quadratic * depth**2 / 2

    def is_above(self, place: tuple[int, int], node: int) -> bool:
        """Return whether `place` lies on the way from the root to the end of `node`."""
        while node >= 0:
            if place[0] == node:
                return True
            node = self.parents[node]
        return False

    def recompute(self, new_states: tuple[tuple[int, int], ...]) -> float:
        """Return the cost of new states together with the fixed ones, by definition."""
        total = 0.0
        for node, weight in enumerate(self.weights):
            above = [s for s in (*self.fixed, *new_states) if self.is_above(s, node)]
            serving = max((self.depth(state) for state in above), default=0)
            end = self.depth((node, self.lengths[node]))
            total += weight * (self.prefill(end) - self.prefill(serving))
        return total

    def best_by_count(self) -> list[float]:
        """Return the least cost of exactly m new states for m = 0, 1, ..., all allowed places."""
        places = sorted(self.allowed, key=self.depth)
        nodes = range(len(self.weights))
        above = [
            sum(1 << bit for bit, place in enumerate(places) if self.is_above(place, node))
            for node in nodes
        ]
        fixed = [
            max((self.depth(s) for s in self.fixed if self.is_above(s, node)), default=0)
            for node in nodes
        ]
        ends = [self.depth((node, self.lengths[node])) for node in nodes]
        best = _best_by_count(
            np.array(above, dtype=np.int64),
            np.array([self.prefill(depth) for depth in fixed]),
            np.array([self.prefill(depth) for depth in ends]),
            np.array(self.weights, dtype=np.float64),
            np.array([self.prefill(self.depth(place)) for place in places], dtype=np.float64),
        )
        return best.tolist()


@njit(cache=True)
def _best_by_count(above, fixed, ends, weights, prefill):  # type: ignore[no-untyped-def]
    """Try every set of places, given from the shallowest to the deepest."""
    places = prefill.size
    best = np.full(places + 1, np.inf)
    for chosen in range(1 << places):
        total = 0.0
        for node in range(weights.size):
            serving = fixed[node]
            for bit in range(places - 1, -1, -1):
                if (chosen & above[node]) >> bit & 1:
                    serving = max(serving, prefill[bit])
                    break
            total += weights[node] * (ends[node] - serving)
        count = 0
        for bit in range(places):
            count += chosen >> bit & 1
        best[count] = min(best[count], total)
    return best
