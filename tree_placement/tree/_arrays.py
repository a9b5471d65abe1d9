"""Compiled walks over trees whose parents come before their children; importing imports numba."""

import numpy as np
from numpy.typing import NDArray

from tree_placement.path._dp import compiled

IntArray = NDArray[np.int64]


@compiled
def depths(parents: IntArray, lengths: IntArray) -> IntArray:
    """Return the depth of each node's end. O(nodes) time and memory."""
    found = np.zeros(parents.size, dtype=np.int64)
    for node in range(1, parents.size):
        found[node] = found[parents[node]] + lengths[node]
    return found


@compiled
def heights(parents: IntArray) -> IntArray:
    """Return the edges on the longest way down from each node. O(nodes) time and memory."""
    found = np.zeros(parents.size, dtype=np.int64)
    for node in range(parents.size - 1, 0, -1):
        above = parents[node]
        found[above] = max(found[above], found[node] + 1)
    return found


@compiled
def child_lists(parents: IntArray, offsets: IntArray) -> IntArray:
    """Return the children of node 0, then those of node 1, ..., each list in rising order."""
    found = np.empty(parents.size - 1, dtype=np.int64)
    free = offsets.copy()
    for node in range(1, parents.size):
        above = parents[node]
        found[free[above]] = node
        free[above] += 1
    return found


@compiled
def serving(parents: IntArray, deepest: IntArray) -> IntArray:
    """Return the depth of the deepest state at or above each node's end, 0 where there is none.

    ``deepest[v]`` is the deepest state in the edge into v, -1 where there is none.
    """
    found = np.zeros(parents.size, dtype=np.int64)
    for node in range(1, parents.size):
        found[node] = deepest[node] if deepest[node] >= 0 else found[parents[node]]
    return found
