"""Compiled dynamic programs of `tree_placement.path`; importing this module imports numba.

Both work on *sites*: depths where a state stands (``fixed``) or may be placed, in rising order.
The first site is the root and the last one closes the path; both are fixed. For a site s,
``prefill[s]`` is F at its depth, ``mass[s]`` the weight of all overlaps above it, and
``moment[s]`` the same weight times F. Overlaps between sites s and j, served by a state at s,
then cost ``moment[j] - moment[s] - prefill[s] * (mass[j] - mass[s])``: in ``mass[j]``, which
rises, a line of slope ``-prefill[s]``, which falls. So the best s is found on a lower hull whose
lines come in the order of their slopes and are asked at rising points: O(1) each, amortised.
A fixed site costs no budget and no price, so no site above it beats it for the overlaps below.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IndexArray = NDArray[np.int32]
Kernel = TypeVar("Kernel", bound=Callable[..., object])


def compiled(kernel: Kernel) -> Kernel:
    """Compile `kernel` at its first call and keep the machine code on disk."""
    return cast(Kernel, njit(cache=True)(kernel))


@compiled
def _is_covered(
    slope_1: float,
    intercept_1: float,
    slope_2: float,
    intercept_2: float,
    slope_3: float,
    intercept_3: float,
) -> float:
    """Return a number <= 0 where line 2 is nowhere below both line 1 and line 3."""
    return (intercept_3 - intercept_1) * (slope_1 - slope_2) - (intercept_2 - intercept_1) * (
        slope_1 - slope_3
    )


@compiled
def _fill_layer(
    prefill: FloatArray,
    mass: FloatArray,
    moment: FloatArray,
    fixed: BoolArray,
    previous: FloatArray,
    current: FloatArray,
    parent: IndexArray,
) -> None:
    """Fill `current` and `parent` for one more new state than `previous` has.

    ``current[j]`` is the least cost of the overlaps above site j, with a state at j. A fixed site
    follows a site of its own layer, one scan a segment; a new one follows a site of `previous`.
    """
    sites = prefill.size
    hull = np.empty(sites, dtype=np.int32)
    intercept = np.empty(sites, dtype=np.float64)
    opening, first, last = 0, 0, -1
    for j in range(1, sites):
        s = j - 1
        if previous[s] < np.inf:
            intercept[s] = previous[s] - moment[s] + prefill[s] * mass[s]
            while last > first:
                a, b = hull[last - 1], hull[last]
                slope_a, slope_b, slope_s = -prefill[a], -prefill[b], -prefill[s]
                if (
                    _is_covered(slope_a, intercept[a], slope_b, intercept[b], slope_s, intercept[s])
                    > 0.0
                ):
                    break
                last -= 1
            last += 1
            hull[last] = s
        current[j] = np.inf
        if fixed[j]:
            for s in range(opening, j):
                value = current[s] + moment[j] - moment[s] - prefill[s] * (mass[j] - mass[s])
                if value < current[j]:
                    current[j] = value
                    parent[j] = s
            opening = j
        elif last >= first:
            while first < last and (
                intercept[hull[first + 1]] - prefill[hull[first + 1]] * mass[j]
                <= intercept[hull[first]] - prefill[hull[first]] * mass[j]
            ):
                first += 1
            s = hull[first]
            current[j] = moment[j] + intercept[s] - prefill[s] * mass[j]
            parent[j] = s


@compiled
def budgeted(
    prefill: FloatArray,
    mass: FloatArray,
    moment: FloatArray,
    fixed: BoolArray,
    budget: int,
) -> IndexArray:
    """Return the sites of exactly `budget` new states of least cost, deepest first.

    There must be that many sites that are not fixed. O(sites * budget) time and memory, the
    memory all in the backtrack of 4 bytes a site and layer.
    """
    sites = prefill.size
    parents = np.zeros((budget + 1, sites), dtype=np.int32)
    previous = np.full(sites, np.inf)
    current = np.full(sites, np.inf)
    for layer in range(budget + 1):
        current[0] = 0.0 if layer == 0 else np.inf
        _fill_layer(prefill, mass, moment, fixed, previous, current, parents[layer])
        previous, current = current, previous
    chosen = np.empty(budget, dtype=np.int32)
    layer, site, found = budget, sites - 1, 0
    while site > 0:
        below = site
        site = parents[layer, below]
        if not fixed[below]:
            chosen[found] = below
            found += 1
            layer -= 1
    return chosen


@compiled
def priced(
    prefill: FloatArray,
    mass: FloatArray,
    moment: FloatArray,
    fixed: BoolArray,
    price: float,
) -> IndexArray:
    """Return the sites of least cost plus `price` a new state, the fewest on a tie; deepest first.

    Costs are compared with the count of new states as their second digit, which is the limit of
    a price raised by a vanishing amount. The hull drops a line that only ties with both neighbours
    without looking at counts: between fixed sites they do not fall with depth (the best site above
    rises with the site, by the quadrangle inequality), so the line before it has no more states.
    O(sites) time and memory.
    """
    sites = prefill.size
    best = np.full(sites, np.inf)
    count = np.zeros(sites, dtype=np.int64)
    parent = np.zeros(sites, dtype=np.int32)
    hull = np.empty(sites, dtype=np.int32)
    intercept = np.empty(sites, dtype=np.float64)
    best[0] = 0.0
    first, last = 0, -1
    for j in range(1, sites):
        s = j - 1
        intercept[s] = best[s] - moment[s] + prefill[s] * mass[s]
        while last > first:
            a, b = hull[last - 1], hull[last]
            slope_a, slope_b, slope_s = -prefill[a], -prefill[b], -prefill[s]
            if (
                _is_covered(slope_a, intercept[a], slope_b, intercept[b], slope_s, intercept[s])
                > 0.0
            ):
                break
            last -= 1
        last += 1
        hull[last] = s
        while first < last:
            a, b = hull[first], hull[first + 1]
            excess = intercept[b] - intercept[a] - (prefill[b] - prefill[a]) * mass[j]
            if excess > 0.0 or (excess == 0.0 and count[b] > count[a]):
                break
            first += 1
        s = hull[first]
        parent[j] = s
        best[j] = moment[j] + intercept[s] - prefill[s] * mass[j]
        count[j] = count[s]
        if not fixed[j]:
            best[j] += price
            count[j] += 1
    chosen = np.empty(count[sites - 1], dtype=np.int32)
    site, found = sites - 1, 0
    while site > 0:
        if not fixed[site]:
            chosen[found] = site
            found += 1
        site = parent[site]
    return chosen
