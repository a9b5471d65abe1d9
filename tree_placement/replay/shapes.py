"""The shape of the tree that each request of a trace belongs to."""

from __future__ import annotations

from tree_placement.replay.families import families
from tree_placement.replay.trace import Trace
from tree_placement.tree.shape import TreeShape, classify


def shapes(trace: Trace) -> tuple[TreeShape, ...]:
    """Return for each request the shape of its tree: all prompts that begin with its first block.

    Only full blocks count, so the turns of a chat are a chain. O(n log n) time for n blocks.

    Examples
    --------
    >>> from tree_placement.replay.trace import trace_of_prompts
    >>> trace = trace_of_prompts(["abcd", "abefgh", "xyz", "xyzuv"], block=2)
    >>> [shape.value for shape in shapes(trace)]
    ['star', 'star', 'chain', 'chain']
    """
    found = [TreeShape.CHAIN] * len(trace.requests)
    for family in families(trace):
        shape = classify(family.tree(trace.block).tree)
        for number in family.paths:
            found[number] = shape
    return tuple(found)
