"""Overlap distributions on few depths, and placements on what was observed of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tree_placement.cost import SparseWeights, expected_recompute
from tree_placement.path import place

SUPPORT = 64
"""Number of depths at which overlaps end."""

STEP = 64
"""Tokens between them."""

LENGTH = SUPPORT * STEP
STATES = 4
DEPTHS = STEP * np.arange(1, SUPPORT + 1)


def peak(centre: float, deviation: float) -> NDArray[np.float64]:
    """Return a normal density over the depths, centre and deviation in tokens, (SUPPORT,)."""
    density = np.exp(-0.5 * ((DEPTHS - centre) / deviation) ** 2)
    return np.asarray(density / density.sum())


def least_cost(weights: NDArray[np.float64]) -> float:
    """Return the expected recompute of the optimal states, in tokens."""
    return place(SparseWeights(DEPTHS, weights), STATES, grid=STEP).cost


def plug_in_cost(truth: NDArray[np.float64], estimate: NDArray[np.float64]) -> float:
    """Return the expected recompute, under the truth, of states that are best for an estimate."""
    depths = place(SparseWeights(DEPTHS, estimate), STATES, grid=STEP).depths
    return expected_recompute(SparseWeights(DEPTHS, truth), depths)
