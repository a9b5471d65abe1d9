"""The shape of the tree that each request of a trace belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tree_placement.replay.trace import Trace
from tree_placement.replay.tree import BlockTree, Segment
from tree_placement.tree.prefix_tree import PrefixTree
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
    tree = BlockTree(trace.block)
    roots: list[Segment | None] = []
    members: dict[Segment, list[Segment]] = {}
    root_of: dict[Segment, Segment] = {}
    for request in trace.requests:
        match = tree.match(request)
        segment = tree.insert(request, match)
        root = root_of[match.segment] if match.segment is not None else segment
        if segment is not None and root is not None:
            root_of[segment] = root
            members.setdefault(root, []).append(segment)
        roots.append(root)
    found = {root: classify(_tree_of(each, trace.block)) for root, each in members.items()}
    return tuple(found[root] if root is not None else TreeShape.CHAIN for root in roots)


def _tree_of(segments: Iterable[Segment], block: int) -> PrefixTree:
    """Return the tree of segments that are given parents first, without weights."""
    parents, lengths = [-1], [0]
    nodes: dict[tuple[Segment | None, int], int] = {(None, 0): 0}
    for segment in segments:
        node = nodes[segment.parent, segment.begin]
        nodes[segment, segment.begin] = node
        above = segment.begin
        for depth in _ends_of_nodes(segment, block):
            parents.append(node)
            lengths.append(depth - above)
            node, above = len(parents) - 1, depth
            nodes[segment, depth] = node
    return PrefixTree(np.array(parents), np.array(lengths), np.zeros(len(parents)))


def _ends_of_nodes(segment: Segment, block: int) -> Sequence[int]:
    """Return the depths where others hang from a segment, and its last full block's end, rising."""
    end = segment.end // block * block
    return sorted({*segment.joints, end} - {segment.begin})
