"""Shapes of prefix trees: which of them fall apart into simpler problems."""

from enum import Enum

import numpy as np

from tree_placement.tree.prefix_tree import PrefixTree


class TreeShape(Enum):
    """What a prefix tree looks like.

    CHAIN has no node with two children: one path. STAR has one such node: a document and its
    questions, say. COMB has several, all on one way from the root, so that all that leaves this
    way is a chain: a long prompt whose tails leave at many depths. GENERAL is everything else.
    """

    CHAIN = "chain"
    STAR = "star"
    COMB = "comb"
    GENERAL = "general"


def classify(tree: PrefixTree) -> TreeShape:
    """Return the shape of `tree`.

    Weights and edge lengths do not matter, and a node with one child counts as part of a path.

    Notes
    -----
    O(n) time and memory.

    Examples
    --------
    >>> classify(PrefixTree(parents=[-1, 0, 1, 1], lengths=[0, 4, 2, 3], weights=[0, 1, 9, 5]))
    <TreeShape.STAR: 'star'>
    """
    branches = np.diff(tree.child_offsets) > 1
    branching = np.flatnonzero(branches)
    if branching.size < 2:
        return TreeShape.STAR if branching.size else TreeShape.CHAIN
    node = int(branching[np.argmax(tree.depths[branching])])
    on_the_way = 0
    while node >= 0:
        on_the_way += bool(branches[node])
        node = int(tree.parents[node])
    return TreeShape.COMB if on_the_way == branching.size else TreeShape.GENERAL
