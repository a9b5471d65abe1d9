"""A server's states at one moment, held to the optimum on its forecast and on the truth."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import NamedTuple

from tree_prompts import GRID, TreeWorkload

from sglang_sparse.demo.server import Server
from sglang_sparse.placement import ROUTE, read_placement
from tree_placement.tree import Optimality, PrefixTree, measure_optimality, tree_recompute
from tree_placement.tree.optimality import over
from tree_placement.tree.prefix_tree import State

CLOSE = 1.05
"""Expected tokens of what is kept, over the exact placement's, up to which they are close."""

NO_TOKEN = 1
"""Begins no prompt and goes on from no node."""

DRAWS = 20


class Moment(NamedTuple):
    """What is kept, on the server's forecast and on the weights that prompts are drawn by.

    `nodes` are the forecast's; `forecast` is of the states that stay there when the next request
    takes its slots, `truth` of all that the idle server has. `random` is the cost on the forecast
    of as many states at random nodes, `random_truth` the same on the tree that is drawn from.
    """

    nodes: int
    forecast: Optimality
    random: float
    truth: Optimality
    random_truth: float


class Watched(NamedTuple):
    """A workload, how it looked at several moments, and what it had: prompts, and slots for
    states while one request runs."""

    workload: TreeWorkload
    moments: Sequence[Moment]
    prompts: int
    slots: int

    def mean(self, what: Callable[[Moment], float]) -> float:
        """Return the mean of a quantity over the moments."""
        return mean(map(what, self.moments))

    @property
    def ratio(self) -> float:
        """What is kept over the exact placement, on the forecast."""
        return over(self.mean(lambda at: at.forecast.cost), self.mean(lambda at: at.forecast.exact))

    @property
    def is_close(self) -> bool:
        """Whether what is kept is close to the exact placement, on the forecast."""
        return self.ratio <= CLOSE

    @property
    def control_is_far(self) -> bool:
        """Whether random states are not close: else closeness says nothing."""
        return self.mean(lambda at: at.random) > CLOSE * self.mean(lambda at: at.forecast.exact)


def moment_of(server: Server, workload: TreeWorkload, slots: int) -> Moment:
    """Ask a server that has `slots` for states while one request runs what it keeps, and why."""
    (answer,) = server.get(ROUTE).raise_for_status().json()
    forecast = read_placement(answer)
    stay = staying(forecast.tree, forecast.kept, slots)
    serving = [_deepest_state(server, workload, node) for node in range(1, len(workload.tree))]
    kept = states_of(workload.tree, serving)
    return Moment(
        nodes=len(forecast.tree),
        forecast=measure_optimality(forecast.tree, stay, grid=answer["grid"]),
        random=random_cost(forecast.tree, len(stay)),
        truth=measure_optimality(workload.tree, kept, len(forecast.kept), grid=GRID),
        random_truth=random_cost(workload.tree, len(forecast.kept)),
    )


def staying(tree: PrefixTree, kept: Sequence[State], slots: int) -> list[State]:
    """Return the states that are left when all but `slots` are given up, the one that is expected
    to save least first: as a server does whose slots running requests take."""
    stay = list(kept)
    while len(stay) > slots:
        costs = [tree_recompute(tree, [*stay[:i], *stay[i + 1 :]]) for i in range(len(stay))]
        del stay[costs.index(min(costs))]
    return stay


def _deepest_state(server: Server, workload: TreeWorkload, node: int) -> int:
    """Return the depth at which a prompt that leaves the tree at the end of `node` resumes."""
    tokens = [*workload.path(node), NO_TOKEN]
    answer = server.post("/sparse/explain", input_ids=tokens, extra_key=workload.name)
    return int(answer.raise_for_status().json()["state"])


def states_of(tree: PrefixTree, serving: Iterable[int]) -> set[State]:
    """Return the states that serve the nodes 1, 2, ... of a tree, given the depth of each."""
    states = set()
    for node, depth in enumerate(serving, start=1):
        while depth <= tree.depths[node] - tree.lengths[node] and node > 0:
            node = int(tree.parents[node])
        if node > 0:
            states.add((node, int(depth - tree.depths[node] + tree.lengths[node])))
    return states


def random_cost(tree: PrefixTree, states: int) -> float:
    """Return the mean cost of so many states at the ends of random nodes, or of all nodes."""
    draw, nodes = random.Random(0), range(1, len(tree))
    places = [(node, int(tree.lengths[node])) for node in nodes]
    count = min(states, len(places))
    return mean(tree_recompute(tree, draw.sample(places, count)) for _ in range(DRAWS))
