"""Where the states of a replay lie: the trees of a trace with the states that live on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tree_placement.replay.families import families
from tree_placement.replay.simulator import Served
from tree_placement.replay.trace import Trace
from tree_placement.tree.prefix_tree import PrefixTree, State
from tree_placement.tree.shape import TreeShape, classify


@dataclass(frozen=True, eq=False)
class KeptTree:
    """The tree of prompts that begin with the same block, and its live states.

    Parameters
    ----------
    shape
        Of the tree.
    requests
        How many prompts made it.
    leaves
        How many ends it has.
    tree
        Its weights are the shares of the prompts' overlaps that ended at each node; all 0 where
        there was no overlap.
    states
        Live states, sorted.
    """

    shape: TreeShape
    requests: int
    leaves: int
    tree: PrefixTree
    states: tuple[State, ...]


def kept_trees(trace: Trace, served: Sequence[Served]) -> tuple[KeptTree, ...]:
    """Return the trees that have live states after a replay, in order of their first request.

    Parameters
    ----------
    trace
        What was replayed, all KV kept, with a grid of whole blocks.
    served
        How its requests went. Where these are only the first ones, the trees are as they were then.

    Notes
    -----
    O(n log n) time for n blocks, and linear in the length of a path for each request and state.

    Examples
    --------
    >>> from tree_placement.replay import Budget, replay, trace_of_prompts
    >>> from tree_placement.replay.policies import policy_named
    >>> trace = trace_of_prompts([range(640), [*range(320), *range(900, 1000)]], block=16)
    >>> budget = Budget(slots=2)
    >>> kept, = kept_trees(trace, replay(trace, policy_named("end", trace, budget), budget))
    >>> kept.tree.depths, kept.tree.weights, kept.states
    (array([  0, 320, 640, 416]), array([0., 1., 0., 0.]), ((2, 320), (3, 64)))
    """
    trace = trace.first(len(served))
    live = _live_depths(served)
    found = []
    for family in families(trace):
        if live.keys().isdisjoint(family.paths):
            continue
        whole = family.tree(trace.block)
        ends = [
            (*whole.place(path, served[number].overlap), 1.0)
            for number, path in family.paths.items()
            if served[number].overlap
        ]
        states = [
            whole.place(path, depth)
            for number, path in family.paths.items()
            for depth in live.get(number, ())
        ]
        found.append(_kept(whole.tree, ends, states, len(family.paths)))
    return tuple(found)


def _live_depths(served: Sequence[Served]) -> dict[int, set[int]]:
    """Return the depths of the states that live in the end, by the request that wrote them."""
    live: dict[int, set[int]] = {}
    for each in served:
        for state in each.evicted:
            live[state.writer].remove(state.depth)
            if not live[state.writer]:
                del live[state.writer]
        for state in each.written:
            live.setdefault(state.writer, set()).add(state.depth)
    return live


def _kept(
    tree: PrefixTree,
    ends: Sequence[tuple[int, int, float]],
    states: Sequence[State],
    requests: int,
) -> KeptTree:
    shares = [(node, within, weight / len(ends)) for node, within, weight in ends]
    observed = PrefixTree.from_observations(tree.parents, tree.lengths, shares)
    return KeptTree(
        shape=classify(tree),
        requests=requests,
        leaves=int((tree.heights == 0).sum()),
        tree=observed.tree,
        states=tuple(sorted(observed.fine(states))),
    )
