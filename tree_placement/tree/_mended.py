"""Compiled parts of `tree_placement.incremental.PricedTree`; importing this imports numba.

The functions, limits and entries are those of `_tree_priced`, but each node keeps the entries of
its own ``h``, sorted by site and those of one site added up, so that one child's part can be taken
out and another put in. A change at a node goes up its way to the root, and ends where a function
keeps its shape: constants change no decision, and are summed over all nodes beside it. Sums that
terms are taken out of again carry the rounding error along (Neumaier, ZAMM 54, 1974).
"""

from typing import Any

import numpy as np

from tree_placement.path._dp import compiled
from tree_placement.tree._records import (
    COUNT,
    NEW_SIZE,
    NEW_SLOPE,
    NODE_AT,
    OLD_AT,
    OLD_SIZE,
    OLD_SLOPE,
    PRICE,
    TOTAL,
    TOTAL_REST,
    USED,
    Mended,
    Records,
)
from tree_placement.tree._sites import Sites, is_kept, lay, shallowest_kept


@compiled
def _plus(total: float, rest: float, term: float) -> tuple[float, float]:
    """Add `term` to `total`, and the rounding error to `rest`."""
    raised = total + term
    if abs(total) >= abs(term):
        return raised, rest + ((total - raised) + term)
    return raised, rest + ((term - raised) + total)


@compiled
def _copy(source: Records, first: int, stop: int, target: Records, at: int) -> int:
    """Copy entries as finished sums; return where they end."""
    for place in range(first, stop):
        target[at].key = source[place].key
        target[at].site = source[place].site
        target[at].parts = 1
        target[at].cost = source[place].cost + source[place].cost_rest
        target[at].cost_rest = 0.0
        target[at].count = source[place].count
        target[at].slope = source[place].slope + source[place].slope_rest
        target[at].slope_rest = 0.0
        at += 1
    return at


@compiled
def _decide(tree: Mended, node: int, shape: Records) -> tuple[int, float]:
    """Settle what stands at `node`; write the shape of its ``g``; return its entries and slope."""
    record = tree.nodes[node]
    sites, entries = tree.sites, tree.entries
    first, stop = record.first, record.first + record.entries
    slope = record.slope + record.slope_rest
    constant, states, limit = record.weight * record.prefill, 0.0, -np.inf
    size = 0
    if record.candidate < 0.0:
        if record.standing >= 0.0:
            constant -= slope * record.standing
            slope = 0.0
        else:
            size = _copy(entries, first, stop, shape, 0)
    else:
        value, count = tree.numbers[PRICE] - slope * record.candidate, 1.0
        for place in range(first, stop):
            entry = entries[place]
            value += entry.cost + entry.cost_rest
            value -= (entry.slope + entry.slope_rest) * record.candidate
            count += entry.count
        if stop > first and entries[stop - 1].site == 2 * node + 1:
            stop -= 1
        top = 2 * node if record.standing >= 0.0 else tree.nodes[record.parent].top
        ground = sites.prefill[sites.ground[top]]
        if not is_kept(ground, -value, -count, slope):
            constant += value
            states = count
            size, limit = _cut(sites, entries, first, stop, top, -value, -count, slope, node, shape)
            slope = 0.0
        elif record.standing >= 0.0:
            constant -= slope * record.standing
            slope = 0.0
        else:
            size = _copy(entries, first, stop, shape, 0)
    numbers = tree.numbers
    for term in (-record.constant, constant):
        numbers[TOTAL], numbers[TOTAL_REST] = _plus(numbers[TOTAL], numbers[TOTAL_REST], term)
    numbers[COUNT] += states - record.states
    record.constant, record.states, record.limit = constant, states, limit
    return size, slope


@compiled
def _cut(
    sites: Sites,
    entries: Records,
    first: int,
    stop: int,
    top: int,
    value: float,
    count: float,
    slope: float,
    node: int,
    shape: Records,
) -> tuple[int, float]:
    """Write the shape of a node whose state pays on its shallowest site; return size and limit."""
    if top == 2 * node:
        return 0, np.inf
    site, place = top, first
    while place < stop:
        entry = entries[place]
        cost = value + (entry.cost + entry.cost_rest)
        states = count + entry.count
        steeper = slope + (entry.slope + entry.slope_rest)
        if is_kept(entry.key, cost, states, steeper):
            site = entry.site
            break
        value, count, slope = cost, states, steeper
        place += 1
    if place == stop and not is_kept(sites.prefill[top], value, count, slope):
        return 0, np.inf
    site = shallowest_kept(sites, site, value, count, slope)
    own = shape[0]
    own.key, own.site, own.parts = sites.prefill[site], site, 1
    own.cost, own.cost_rest, own.count = value, 0.0, count
    own.slope, own.slope_rest = slope, 0.0
    if place < stop and entries[place].site == site:
        own.cost += entries[place].cost + entries[place].cost_rest
        own.count += entries[place].count
        own.slope += entries[place].slope + entries[place].slope_rest
        place += 1
    return _copy(entries, place, stop, shape, 1), own.key


@compiled
def _add_parts(entry: Any, part: Any, sign: int) -> None:
    """Add a child's entry to its parent's, or take it out."""
    entry.parts += sign
    entry.cost, entry.cost_rest = _plus(entry.cost, entry.cost_rest, sign * part.cost)
    entry.count += sign * part.count
    entry.slope, entry.slope_rest = _plus(entry.slope, entry.slope_rest, sign * part.slope)


@compiled
def _replace(tree: Mended, node: int, old: int, old_size: int, new_size: int, free: int) -> None:
    """Put a child's new entries (row `old` + 1 of the shapes) for its old ones (row `old`).

    The entries are merged into row `free` and then written back; there must be room for them.
    """
    record, entries = tree.nodes[node], tree.entries
    removed, added, merged = tree.shapes[old], tree.shapes[old + 1], tree.shapes[free]
    i, stop = record.first, record.first + record.entries
    j = k = size = 0
    while i < stop or k < new_size:
        entry = merged[size]
        if i < stop and (k == new_size or entries[i].key <= added[k].key):
            merged[size] = entries[i]
            i += 1
        else:
            entry.key, entry.site, entry.parts = added[k].key, added[k].site, 0
            entry.cost = entry.cost_rest = entry.count = 0.0
            entry.slope = entry.slope_rest = 0.0
        if k < new_size and added[k].site == entry.site:
            _add_parts(entry, added[k], 1)
            k += 1
        if j < old_size and removed[j].site == entry.site:
            _add_parts(entry, removed[j], -1)
            j += 1
        if entry.parts > 0:
            size += 1
    if size > record.room:
        record.first, record.room = tree.marks[USED], 2 * size
        tree.marks[USED] += record.room
    for place in range(size):
        entries[record.first + place] = merged[place]
    record.entries = size


@compiled
def _is_unchanged(tree: Mended, old: int, old_size: int, new_size: int) -> bool:
    if old_size != new_size or tree.numbers[OLD_SLOPE] != tree.numbers[NEW_SLOPE]:
        return False
    for place in range(new_size):
        before, after = tree.shapes[old, place], tree.shapes[old + 1, place]
        if before.site != after.site or before.cost != after.cost:
            return False
        if before.count != after.count or before.slope != after.slope:
            return False
    return True


@compiled
def go_up(tree: Mended) -> int:
    """Mend the ancestors of the node that changed; return 0, or the room for entries it lacks.

    When room is lacking nothing is lost: make it, and call again.
    """
    marks, numbers = tree.marks, tree.numbers
    while True:
        node, old = marks[NODE_AT], marks[OLD_AT]
        old_size, new_size = marks[OLD_SIZE], marks[NEW_SIZE]
        if node == 0 or _is_unchanged(tree, old, old_size, new_size):
            return 0
        above = tree.nodes[node].parent
        record = tree.nodes[above]
        size = record.entries + new_size
        if size > record.room and marks[USED] + 2 * size > tree.entries.size:
            return int(2 * size)
        free = 2 - old
        above_size, above_slope = _decide(tree, above, tree.shapes[free])
        for term in (-numbers[OLD_SLOPE], numbers[NEW_SLOPE]):
            record.slope, record.slope_rest = _plus(record.slope, record.slope_rest, term)
        _replace(tree, above, old, old_size, new_size, free + 1)
        marks[OLD_SIZE], numbers[OLD_SLOPE] = above_size, above_slope
        marks[NEW_SIZE], numbers[NEW_SLOPE] = _decide(tree, above, tree.shapes[free + 1])
        marks[NODE_AT], marks[OLD_AT] = above, free


@compiled
def set_weight(tree: Mended, node: int, weight: float) -> int:
    """Change the weight of `node` and mend the tree; return as `go_up`."""
    marks, numbers, record = tree.marks, tree.numbers, tree.nodes[node]
    marks[NODE_AT], marks[OLD_AT] = node, 0
    marks[OLD_SIZE], numbers[OLD_SLOPE] = _decide(tree, node, tree.shapes[0])
    for term in (-record.weight, weight):
        record.slope, record.slope_rest = _plus(record.slope, record.slope_rest, term)
    record.weight = weight
    marks[NEW_SIZE], numbers[NEW_SLOPE] = _decide(tree, node, tree.shapes[1])
    return go_up(tree)


@compiled
def _start(tree: Mended, node: int) -> None:
    """Take the shape of `node` for new to its parent."""
    tree.marks[NODE_AT], tree.marks[OLD_AT] = node, 0
    tree.marks[OLD_SIZE], tree.numbers[OLD_SLOPE] = 0, 0.0
    tree.marks[NEW_SIZE], tree.numbers[NEW_SLOPE] = _decide(tree, node, tree.shapes[1])


@compiled
def add_leaf(tree: Mended, node: int) -> int:
    """Mend the tree for a leaf that has just been written; return as `go_up`."""
    _lay(tree, node)
    _start(tree, node)
    return go_up(tree)


@compiled
def _lay(tree: Mended, node: int) -> int:
    record = tree.nodes[node]
    top = tree.nodes[record.parent].top if node else 0
    record.top = lay(tree.sites, node, top, record.standing, record.candidate)
    record.slope = record.weight
    return int(tree.sites.level[record.top])


@compiled
def lay_all(tree: Mended, nodes: int) -> int:
    """Lay the sites of all nodes; return the highest level among them."""
    highest = 0
    for node in range(nodes):
        highest = max(highest, _lay(tree, node))
    return highest


@compiled
def build(tree: Mended, node: int) -> int:
    """Decide `node` and all before it, from the last up; return a node that lacks room, or -1."""
    while node > 0:
        above = tree.nodes[tree.nodes[node].parent]
        _start(tree, node)
        size = above.entries + tree.marks[NEW_SIZE]
        if size > above.room and tree.marks[USED] + 2 * size > tree.entries.size:
            return node
        above.slope, above.slope_rest = _plus(
            above.slope, above.slope_rest, tree.numbers[NEW_SLOPE]
        )
        _replace(tree, tree.nodes[node].parent, 0, 0, tree.marks[NEW_SIZE], 2)
        node -= 1
    return -1


@compiled
def move(nodes: Records, count: int, source: Records, target: Records) -> int:
    """Copy all entries to `target` without gaps; return how many there are."""
    used = 0
    for node in range(count):
        record = nodes[node]
        for place in range(record.entries):
            target[used + place] = source[record.first + place]
        record.first, record.room = used, record.entries
        used += record.entries
    return used


@compiled
def state_above(nodes: Records, node: int) -> tuple[int, int]:
    """Return (node, depth from the root) of the deepest state at or above the end of `node`."""
    steps, at = 0, node
    while at > 0:
        at = nodes[at].parent
        steps += 1
    way = np.empty(steps, dtype=np.int64)
    at = node
    for step in range(steps - 1, -1, -1):
        way[step] = at
        at = nodes[at].parent
    serving, found, depth = 0.0, 0, 0
    for step in range(steps):
        record = nodes[way[step]]
        if record.candidate >= 0.0 and serving < record.limit:
            serving, found, depth = record.candidate, way[step], record.candidate_depth
        elif record.standing >= 0.0:
            serving, found, depth = record.standing, way[step], record.standing_depth
    return found, depth
