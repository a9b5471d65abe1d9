"""The compiled dynamic program of the paper's rule; importing this module imports numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tree_placement.path._dp import FloatArray, IndexArray, compiled


def last_states(masses: FloatArray, count: int) -> IndexArray:
    """Return the bin of the last of m + 1 states for the overlaps in the bins down to j, at [m, j].

    Parameters
    ----------
    masses
        Weight of each bin; a state at bin s serves overlaps from s on, and costs them their
        distance in bins.
    count
        States, >= 1.

    Returns
    -------
    ndarray
        Shape (count, bins), int32. The state before the last one is looked up at the bin above it.

    Notes
    -----
    dp[m, j] = min over s of dp[m - 1, s - 1] + w(s, j), in O(count bins) time: the candidates are
    lines of falling slope, asked at rising points.
    """
    shares: FloatArray = masses / masses.sum()
    bins = np.arange(masses.size, dtype=np.float64)
    mass = np.concatenate((np.zeros(1), np.cumsum(shares)))
    moment = np.concatenate((np.zeros(1), np.cumsum(shares * bins)))
    return _filled(mass, moment, count)


@compiled
def _filled(mass: FloatArray, moment: FloatArray, count: int) -> IndexArray:
    size = mass.size - 1
    last = np.zeros((count, size), dtype=np.int32)
    cost = moment[1:].copy()
    slope, intercept = np.empty(size), np.empty(size)
    bins = np.empty(size, dtype=np.int32)
    for layer in range(count):
        lines, at = 0, 0
        above = 0.0
        for j in range(1, size):
            new_slope = -float(j)
            new_intercept = above - moment[j] + j * mass[j]
            while lines >= 2 and (new_intercept - intercept[lines - 2]) * (
                slope[lines - 2] - slope[lines - 1]
            ) <= (intercept[lines - 1] - intercept[lines - 2]) * (slope[lines - 2] - new_slope):
                lines -= 1
            slope[lines], intercept[lines], bins[lines] = new_slope, new_intercept, j
            lines += 1
            at = min(at, lines - 1)
            asked = mass[j + 1]
            while (
                at + 1 < lines
                and slope[at + 1] * asked + intercept[at + 1] < slope[at] * asked + intercept[at]
            ):
                at += 1
            above = cost[j]
            cost[j] = slope[at] * asked + intercept[at] + moment[j + 1]
            last[layer, j] = bins[at]
        cost[0] = 0.0
    return last


def chosen(last: NDArray[np.int32], bin: int) -> list[int]:
    """Return the bins of the states for overlaps down to `bin`, the deepest first."""
    states = []
    for layer in range(last.shape[0] - 1, -1, -1):
        state = int(last[layer, bin])
        if state == 0:
            break
        states.append(state)
        bin = state - 1
    return states
