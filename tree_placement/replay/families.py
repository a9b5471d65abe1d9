"""The requests of a trace in families: prompts that begin with the same block, and their tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tree_placement.replay.trace import Trace
from tree_placement.replay.tree import BlockTree, Match, Segment
from tree_placement.tree.prefix_tree import PrefixTree, State


class FamilyTree(NamedTuple):
    """A prefix tree of full blocks, without weights, and the nodes on each of its segments.

    `nodes` lists (depth of its end in tokens, node) of each segment's nodes, rising.
    """

    tree: PrefixTree
    nodes: dict[Segment, list[tuple[int, int]]]

    def place(self, path: Match, depth: int) -> State:
        """Return the place at `depth` >= 1 of a path, no deeper than the path's last full block."""
        segment = next(segment for segment, _ in path.path() if segment.begin < depth)
        end, node = next(each for each in self.nodes[segment] if each[0] >= depth)
        return node, depth - end + int(self.tree.lengths[node])


@dataclass(frozen=True)
class Family:
    """Prompts that begin with the same block.

    Parameters
    ----------
    paths
        The whole path of each request, by its number, in order of arrival.
    segments
        What they added to the tree, parents first.
    """

    paths: dict[int, Match] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)

    def tree(self, block: int) -> FamilyTree:
        """Return the tree of the full blocks, so that the turns of a chat are a chain.

        Time is O(n log n) for n segments.
        """
        return _tree_of(self.segments, block)


def families(trace: Trace) -> tuple[Family, ...]:
    """Return the families of a trace, in order of their first request. O(n log n) for n blocks.

    Examples
    --------
    >>> from tree_placement.replay.trace import trace_of_prompts
    >>> trace = trace_of_prompts(["abcd", "xyz", "abefgh"], block=2)
    >>> [list(family.paths) for family in families(trace)]
    [[0, 2], [1]]
    >>> families(trace)[0].tree(trace.block).tree.depths
    array([0, 2, 4, 6])
    """
    tree = BlockTree(trace.block)
    found: list[Family] = []
    of_segment: dict[Segment, Family] = {}
    for number, request in enumerate(trace.requests):
        match = tree.match(request)
        segment = tree.insert(request, match)
        if match.segment is None:
            family = Family()
            found.append(family)
        else:
            family = of_segment[match.segment]
        if segment is not None:
            of_segment[segment] = family
            family.segments.append(segment)
        last = segment if segment is not None else match.segment
        family.paths[number] = Match(request.length, last)
    return tuple(found)


def _tree_of(segments: Iterable[Segment], block: int) -> FamilyTree:
    parents, lengths = [-1], [0]
    nodes: dict[Segment, list[tuple[int, int]]] = {}
    at: dict[tuple[Segment | None, int], int] = {(None, 0): 0}
    for segment in segments:
        node = at[segment.parent, segment.begin]
        at[segment, segment.begin] = node
        above = segment.begin
        nodes[segment] = []
        for depth in _ends_of_nodes(segment, block):
            parents.append(node)
            lengths.append(depth - above)
            node, above = len(parents) - 1, depth
            at[segment, depth] = node
            nodes[segment].append((depth, node))
    tree = PrefixTree(np.array(parents), np.array(lengths), np.zeros(len(parents)))
    return FamilyTree(tree, nodes)


def _ends_of_nodes(segment: Segment, block: int) -> Sequence[int]:
    """Return the depths where others hang from a segment, and its last full block's end, rising."""
    end = segment.end // block * block
    return sorted({*segment.joints, end} - {segment.begin})
