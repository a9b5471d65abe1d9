"""Compiled exact program of `tree_placement.tree_exact`; importing this module imports numba.

Every edge holds at most one *site*, where a new state may stand, and above it at most one standing
state; the root holds a standing one. Both are given by F there, negative where there is none. For a
node v and a number of new states j,

    closed[v, j]    is the least cost of v's subtree (its edge included) when v's own states,
                    standing or new, serve it, so that nothing above v matters;
    tables[v, j]    is the least cost of the subtrees of v and of v's later siblings together,
                    for one given state that serves them from above.

``closed`` of a site needs ``tables`` of its descendants for this one source, and those need
``closed`` of every descendant: so ``closed`` is filled from the bottom up, with one pass over each
site's subtree. A table is as wide as the sites under it, at most budget + 1.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tree_placement.path._dp import FloatArray, compiled

IntArray = NDArray[np.int64]
SplitArray = NDArray[np.unsignedinteger[Any]]


class Nodes(NamedTuple):
    """A tree's nodes in preorder, so that a subtree is one range, its root first.

    Parameters
    ----------
    original
        Node in the order given.
    parent, end
        Position of the parent, and the first position behind the subtree.
    scope
        Position of the nearest node, at or above, that holds a standing state.
    width, chain_width
        Entries of ``closed``, and of ``tables``, which count later siblings too.
    start
        Where the row begins in both, which are flat.
    prefill, weight, site, standing
        F at the node's end, its weight, and F at what its edge holds.
    """

    original: IntArray
    parent: IntArray
    end: IntArray
    scope: IntArray
    width: IntArray
    chain_width: IntArray
    start: IntArray
    prefill: FloatArray
    weight: FloatArray
    site: FloatArray
    standing: FloatArray


@compiled
def without_idle_sites(
    parents: IntArray, weight: FloatArray, site: FloatArray, standing: FloatArray
) -> FloatArray:
    """Return `site` without those that no optimum needs. O(nodes) time.

    Such a site serves no weight, or all that it serves hangs on one child whose edge has a site
    too: a state moved there serves it from deeper.
    """
    kept = site.copy()
    served = weight.copy()
    branches = np.zeros(parents.size, dtype=np.int64)
    has_site_below = np.zeros(parents.size, dtype=np.bool_)
    for v in range(parents.size - 1, 0, -1):
        if served[v] == 0.0 or (weight[v] == 0.0 and branches[v] == 1 and has_site_below[v]):
            kept[v] = -1.0
        if standing[v] < 0.0 and served[v] > 0.0:
            above = parents[v]
            served[above] += served[v]
            branches[above] += 1
            has_site_below[above] = site[v] >= 0.0
    return kept


@compiled
def in_preorder(
    parents: IntArray,
    prefill: FloatArray,
    weight: FloatArray,
    site: FloatArray,
    standing: FloatArray,
    budget: int,
) -> Nodes:
    """Lay out nodes that come parents before children, the root first. O(nodes) time."""
    count = parents.size
    size = np.ones(count, dtype=np.int64)
    sites = np.zeros(count, dtype=np.int64)
    for v in range(count - 1, 0, -1):
        if site[v] >= 0.0:
            sites[v] += 1
        size[parents[v]] += size[v]
        sites[parents[v]] += sites[v]
    position = np.zeros(count, dtype=np.int64)
    following = np.ones(count, dtype=np.int64)
    for v in range(1, count):
        position[v] = following[parents[v]]
        following[parents[v]] += size[v]
        following[v] = position[v] + 1
    original = np.empty(count, dtype=np.int64)
    original[position] = np.arange(count)
    parent = position[parents[original]]
    end = np.arange(count) + size[original]
    sites = sites[original]
    chain = sites.copy()
    for v in range(count - 1, 0, -1):
        if end[v] < end[parent[v]]:
            chain[v] += chain[end[v]]
    scope = np.zeros(count, dtype=np.int64)
    for v in range(1, count):
        scope[v] = v if standing[original[v]] >= 0.0 else scope[parent[v]]
    chain_width = np.minimum(chain, budget) + 1
    return Nodes(
        original,
        parent,
        end,
        scope,
        np.minimum(sites, budget) + 1,
        chain_width,
        np.cumsum(chain_width) - chain_width,
        prefill[original],
        weight[original],
        site[original],
        standing[original],
    )


@compiled
def _serve(nodes: Nodes, v: int, source: float, tables: FloatArray, out: FloatArray) -> int:
    """Write v's cost by count of new states below it, all served by `source`; return the width."""
    distance = nodes.prefill[v] - source
    own = nodes.weight[v] * distance
    if nodes.end[v] == v + 1:
        out[0] = own
        return 1
    below = nodes.start[v + 1]
    width = int(nodes.chain_width[v + 1])
    for j in range(width):
        out[j] = tables[below + j] + own
    return width


@compiled
def _choose_subtree(
    nodes: Nodes, v: int, source: float, closed: FloatArray, tables: FloatArray, out: FloatArray
) -> None:
    """Write the least cost of v's subtree for one `source` above it: served by it, or closed."""
    start = nodes.start[v]
    width = nodes.width[v]
    if nodes.standing[v] >= 0.0:
        out[:width] = closed[start : start + width]
        return
    served = _serve(nodes, v, source, tables, out)
    if nodes.site[v] >= 0.0:
        for j in range(1, served):
            out[j] = min(out[j], closed[start + j])
        if served < width:
            out[served] = closed[start + served]


@compiled
def _fill_below(
    nodes: Nodes,
    top: int,
    source: float,
    closed: FloatArray,
    tables: FloatArray,
    splits: SplitArray,
) -> None:
    """Fill `tables` of top's descendants for one `source`, down to the next standing states.

    ``splits`` says how many of a row's new states go to the node's own subtree.
    """
    own = np.empty(nodes.width[top] + 1)
    for v in range(nodes.end[top] - 1, top, -1):
        if nodes.scope[nodes.parent[v]] != nodes.scope[top]:
            continue
        start = nodes.start[v]
        sibling = nodes.end[v]
        if sibling == nodes.end[nodes.parent[v]]:
            _choose_subtree(nodes, v, source, closed, tables, tables[start:])
            continue
        _choose_subtree(nodes, v, source, closed, tables, own)
        width = nodes.chain_width[v]
        rest = nodes.start[sibling]
        tables[start : start + width] = np.inf
        for i in range(nodes.width[v]):
            for j in range(i, min(i + nodes.chain_width[sibling], width)):
                total = own[i] + tables[rest + j - i]
                if total < tables[start + j]:
                    tables[start + j] = total
                    splits[start + j] = i


@compiled
def _close(nodes: Nodes, closed: FloatArray, tables: FloatArray, splits: SplitArray) -> None:
    """Fill `closed` from the bottom up: one pass over the subtree of each site."""
    own = np.empty(nodes.width[0] + 1)
    for v in range(nodes.parent.size - 1, -1, -1):
        start = nodes.start[v]
        width = nodes.width[v]
        if nodes.site[v] >= 0.0:
            _fill_below(nodes, v, nodes.site[v], closed, tables, splits)
            served = _serve(nodes, v, nodes.site[v], tables, own)
            for j in range(min(served, width - 1)):
                closed[start + 1 + j] = own[j]
        if nodes.standing[v] >= 0.0:
            _fill_below(nodes, v, nodes.standing[v], closed, tables, splits)
            served = _serve(nodes, v, nodes.standing[v], tables, own)
            for j in range(served):
                closed[start + j] = min(closed[start + j], own[j])


@compiled
def _trace(
    nodes: Nodes, states: int, closed: FloatArray, tables: FloatArray, splits: SplitArray
) -> IntArray:
    """Return the nodes whose sites hold the new states, by filling again the tables that decide."""
    chosen = np.empty(states, dtype=np.int64)
    found = 0
    own = np.empty(nodes.width[0] + 1)
    pending = [(0, states, 0.0)]
    while pending:
        v, count, source = pending.pop()
        if count == 0:
            continue
        if v > 0 and nodes.end[v] < nodes.end[nodes.parent[v]]:
            mine = int(splits[nodes.start[v] + count])
            pending.append((int(nodes.end[v]), count - mine, source))
            count = mine
            if count == 0:
                continue
        if nodes.standing[v] >= 0.0:
            source = float(nodes.standing[v])
            _fill_below(nodes, v, source, closed, tables, splits)
        served = _serve(nodes, v, source, tables, own)
        if nodes.site[v] >= 0.0 and (
            count >= served or own[count] > closed[nodes.start[v] + count]
        ):
            chosen[found] = nodes.original[v]
            found += 1
            count -= 1
            source = float(nodes.site[v])
            _fill_below(nodes, v, source, closed, tables, splits)
        if nodes.end[v] > v + 1:
            pending.append((v + 1, count, source))
    return chosen


@compiled
def least_costs(nodes: Nodes, splits: SplitArray) -> FloatArray:
    """Return the least cost of 0, 1, ... new states, up to the budget or the number of sites.

    `splits` is scratch space, one entry a table entry, of a type that holds the budget.
    """
    closed = np.full(splits.size, np.inf)
    _close(nodes, closed, np.empty(splits.size), splits)
    return closed[: nodes.width[0]].copy()


@compiled
def budgeted(nodes: Nodes, splits: SplitArray) -> IntArray:
    """Return the nodes of the fewest new states of least cost, within the budget.

    `splits` is as for `least_costs`.
    """
    closed = np.full(splits.size, np.inf)
    tables = np.empty(splits.size)
    _close(nodes, closed, tables, splits)
    states = int(np.argmin(closed[: nodes.width[0]]))
    return _trace(nodes, states, closed, tables, splits)
