"""The compiled flow of slots through time; importing this module imports numba."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tree_placement.path._dp import BoolArray, FloatArray, compiled

Integers = NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)

UNREACHED = 1e18


class _Arcs(NamedTuple):
    """Arcs in pairs, one way and back: the ends, what may still flow, and what a unit gains."""

    source: Integers
    target: Integers
    room: Integers
    gain: FloatArray


def best_flow(requests: int, uses: Sequence[tuple[int, int, int]], slots: int) -> BoolArray:
    """Return which uses, (since, to, gain), the flow of greatest gain takes.

    Node 2 i is the time after request i, node 2 i - 1 the hit of request i.
    """
    since, to, gain = np.array(uses, dtype=np.int64).T
    later = np.arange(1, requests, dtype=np.int64)
    taken_from = np.concatenate((2 * since, 2 * later - 1, 2 * later - 2))
    taken_to = np.concatenate((2 * to - 1, 2 * later, 2 * later))
    room = np.ones(taken_from.size, dtype=np.int64)
    room[-later.size :] = slots
    gains = np.zeros(taken_from.size)
    gains[: gain.size] = gain
    arcs = _Arcs(
        _paired(taken_from, taken_to),
        _paired(taken_to, taken_from),
        _paired(room, np.zeros_like(room)),
        _paired(gains, -gains),
    )
    order = np.argsort(arcs.source, kind="stable").astype(np.int64)
    begins = np.searchsorted(arcs.source[order], np.arange(2 * requests)).astype(np.int64)
    _fill(order, begins, arcs.source, arcs.target, arcs.room, arcs.gain, slots)
    taken: BoolArray = arcs.room[: 2 * gain.size : 2] == 0
    return taken


def _paired(ahead: NDArray[Number], back: NDArray[Number]) -> NDArray[Number]:
    paired = np.empty(2 * ahead.size, dtype=ahead.dtype)
    paired[::2], paired[1::2] = ahead, back
    return paired


@compiled
def _fill(
    order: Integers,
    begins: Integers,
    source: Integers,
    target: Integers,
    room: Integers,
    gain: FloatArray,
    units: int,
) -> None:
    """Send unit after unit along the best path left, for as long as it gains anything."""
    nodes = begins.size - 1
    potential = np.full(nodes, UNREACHED)
    potential[0] = 0.0
    for node in range(nodes):
        for each in range(begins[node], begins[node + 1]):
            arc = order[each]
            if room[arc] > 0:
                cost = potential[node] - gain[arc]
                potential[target[arc]] = min(potential[target[arc]], cost)
    by = np.empty(nodes, dtype=np.int64)
    for _ in range(units):
        distance = _distances(order, begins, target, room, gain, potential, by)
        for node in range(nodes):
            if distance[node] < UNREACHED:
                potential[node] += distance[node]
        if potential[nodes - 1] > -0.5:
            return
        node = nodes - 1
        while node:
            arc = by[node]
            room[arc] -= 1
            room[arc ^ 1] += 1
            node = source[arc]


@compiled
def _distances(
    order: Integers,
    begins: Integers,
    target: Integers,
    room: Integers,
    gain: FloatArray,
    potential: FloatArray,
    by: Integers,
) -> FloatArray:
    """Return each node's distance from node 0 over reduced costs; fill in the arc it came by."""
    distance = np.full(potential.size, UNREACHED)
    done = np.zeros(potential.size, dtype=np.bool_)
    distance[0] = 0.0
    waiting = [(0.0, 0)]
    while len(waiting) > 0:
        so_far, node = heapq.heappop(waiting)
        if done[node]:
            continue
        done[node] = True
        for each in range(begins[node], begins[node + 1]):
            arc = order[each]
            end = target[arc]
            if room[arc] == 0 or done[end]:
                continue
            step = so_far - gain[arc] + potential[node] - potential[end]
            if step < distance[end]:
                distance[end] = step
                by[end] = arc
                heapq.heappush(waiting, (step, end))
    return distance
