"""Compiled solver of `tree_placement.tree_priced.place_tree_priced`; importing imports numba.

For x, F at the deepest state above the edge into v, let ``g_v(x)`` be the least cost of v's
subtree, with the prices of its new states. With a candidate at s in v's edge

    h_v(x) = w_v (F_v - x) + sum of g_c(x) over the children c,
    g_v(x) = min(h_v(x), price + h_v(s)).

Both fall in x and are concave: x only gets better, and minima and sums of concave functions are
concave. So a state stands in v's edge where x is below a *limit*, and ``g_v`` is constant there.
Only sites above v can be x, so the limit is the first of them, from the root, where ``h_v`` is
not above the constant: all comparisons are of costs, and nothing is divided or rounded.

Up to a constant, which changes no decision, a function is kept as a slope W on the shallowest
sites and *entries* (site, A, B): from that site on, ``A - B x`` is added. A limit makes an entry,
which takes in all the entries above it; an entry dies where its site is reached from below. The
live ones of a subtree stand in a skew heap, the shallowest first, and their sums beside it.
"""

from typing import NamedTuple

import numpy as np

from tree_placement.path._dp import FloatArray, compiled
from tree_placement.tree._sites import IndexArray, Sites, is_kept, lay, shallowest_kept


class Entries(NamedTuple):
    """Entries in skew heaps, at most one made by each node; `sum_at` adds up by site."""

    site: IndexArray
    key: FloatArray
    terms: FloatArray
    left: IndexArray
    right: IndexArray
    sum_at: FloatArray


COST, COUNT, SLOPE = 0, 1, 2
"""Columns of terms: A, the number of states in A (the second digit of costs), and B."""


@compiled
def _merge(entries: Entries, a: int, b: int) -> int:
    """Return the root of the skew heap of both; O(log) time, amortised."""
    if a < 0 or b < 0:
        return max(a, b)
    key, left, right = entries.key, entries.left, entries.right
    if key[b] < key[a]:
        a, b = b, a
    root = a
    while True:
        rest = right[a]
        right[a] = left[a]
        if rest < 0:
            left[a] = b
            return root
        if key[b] < key[rest]:
            rest, b = b, rest
        left[a] = rest
        a = rest


@compiled
def _pop_site(entries: Entries, root: int) -> int:
    """Take all entries of the shallowest site off the heap, add them to `root`'s, return the rest.

    `root` stays with its terms, and belongs to no heap.
    """
    site, first = entries.site[root], root
    rest = _merge(entries, entries.left[root], entries.right[root])
    while rest >= 0 and entries.site[rest] == site:
        entries.terms[first] += entries.terms[rest]
        rest = _merge(entries, entries.left[rest], entries.right[rest])
    entries.left[first] = entries.right[first] = -1
    return rest


@compiled
def _push(entries: Entries, root: int, entry: int) -> int:
    """Put `entry`, which is shallower than all of the heap or as shallow, at its root."""
    entries.left[entry] = root
    entries.right[entry] = -1
    return entry


@compiled
def _cut(
    sites: Sites,
    entries: Entries,
    node: int,
    top: int,
    heap: int,
    slope: float,
    with_state: FloatArray,
) -> tuple[int, float]:
    """Return the heap of ``g`` and the limit of `node`, whose state pays on its shallowest site.

    `top` is the deepest site above the node's edge, `heap` and `slope` those of ``h``, and
    `with_state` the terms of the cost with a state.
    """
    value, count = -with_state[COST], -with_state[COUNT]
    terms = entries.terms
    while heap >= 0 and entries.key[heap] <= sites.prefill[top]:
        first = heap
        heap = _pop_site(entries, first)
        site = entries.site[first]
        if is_kept(
            entries.key[first],
            value + terms[first, COST],
            count + terms[first, COUNT],
            slope + terms[first, SLOPE],
        ):
            heap = _push(entries, heap, first)
            break
        value += terms[first, COST]
        count += terms[first, COUNT]
        slope += terms[first, SLOPE]
        entries.sum_at[site] -= terms[first]
    else:
        heap, site = -1, top
        if not is_kept(sites.prefill[top], value, count, slope):
            return -1, np.inf
    site = shallowest_kept(sites, site, value, count, slope)
    entries.site[node] = site
    entries.key[node] = sites.prefill[site]
    terms[node, COST], terms[node, COUNT], terms[node, SLOPE] = value, count, slope
    entries.sum_at[site] += terms[node]
    return _push(entries, heap, node), sites.prefill[site]


@compiled
def _limits(
    sites: Sites,
    tops: IndexArray,
    parents: IndexArray,
    weights: FloatArray,
    standing: FloatArray,
    candidates: FloatArray,
    price: float,
) -> FloatArray:
    """Return for each node the F of the shallowest site from which no state of its edge pays."""
    nodes = parents.size
    entries = Entries(
        site=np.zeros(nodes, dtype=np.int32),
        key=np.zeros(nodes),
        terms=np.zeros((nodes, 3)),
        left=np.full(nodes, -1, dtype=np.int32),
        right=np.full(nodes, -1, dtype=np.int32),
        sum_at=np.zeros((2 * nodes, 3)),
    )
    heaps = np.full(nodes, -1, dtype=np.int32)
    sums = np.zeros((nodes, 3))
    slopes = weights.copy()
    limits = np.full(nodes, -np.inf)
    with_state = np.zeros(3)
    for node in range(nodes - 1, 0, -1):
        above = parents[node]
        heap, slope = heaps[node], slopes[node]
        if candidates[node] >= 0.0:
            with_state[COST] = (
                price + sums[node, COST] - (slope + sums[node, SLOPE]) * candidates[node]
            )
            with_state[COUNT] = 1.0 + sums[node, COUNT]
            sums[node] -= entries.sum_at[2 * node + 1]
            top = 2 * node if standing[node] >= 0.0 else tops[above]
            ground = sites.prefill[sites.ground[top]]
            if not is_kept(ground, -with_state[COST], -with_state[COUNT], slope):
                heap, limits[node] = _cut(sites, entries, node, top, heap, slope, with_state)
                sums[node] -= with_state
                sums[node, SLOPE] += slope
                slope = 0.0
                if heap == node and entries.left[node] < 0:
                    sums[node] = entries.terms[node]
        if standing[node] >= 0.0 or limits[node] == np.inf:
            continue
        slopes[above] += slope
        sums[above] += sums[node]
        heaps[above] = _merge(entries, heaps[above], heap)
    return limits


@compiled
def chosen_nodes(
    parents: IndexArray, standing: FloatArray, candidates: FloatArray, limits: FloatArray
) -> IndexArray:
    """Return the nodes with a new state in their edges, going down from the root. O(nodes)."""
    nodes = parents.size
    serving = np.zeros(nodes)
    chosen = np.empty(nodes, dtype=np.int32)
    found = 0
    for node in range(1, nodes):
        serving[node] = serving[parents[node]]
        if candidates[node] >= 0.0 and serving[node] < limits[node]:
            serving[node] = candidates[node]
            chosen[found] = node
            found += 1
        elif standing[node] >= 0.0:
            serving[node] = standing[node]
    return chosen[:found]


@compiled
def solve(
    parents: IndexArray,
    weights: FloatArray,
    standing: FloatArray,
    candidates: FloatArray,
    price: float,
    sites: Sites,
) -> IndexArray:
    """Return the nodes with a new state at the candidate of their edges, the fewest on a tie.

    `standing` and `candidates` are F of the states in each edge, negative where there is none,
    and `sites` is room for the sites. O(nodes log nodes) time, O(nodes) memory.
    """
    nodes = parents.size
    tops = np.zeros(nodes, dtype=np.int32)
    for node in range(nodes):
        top = 0 if node == 0 else tops[parents[node]]
        tops[node] = lay(sites, node, top, standing[node], candidates[node])
    limits = _limits(sites, tops, parents, weights, standing, candidates, price)
    return chosen_nodes(parents, standing, candidates, limits)
