"""Overlap densities that the figures show: probabilities of the depths of one long path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LENGTH = 8_192
"""Tokens of the path."""

GRID = 64
"""States stand at multiples of this many tokens."""


class Shape(NamedTuple):
    """An overlap density.

    Parameters
    ----------
    name
        For the reader.
    weights
        Probability of each overlap depth 1..`LENGTH`, float64.
    """

    name: str
    weights: NDArray[np.float64]


def two_peaks() -> Shape:
    """Return the mixture of a shared document's end and a later, wider peak."""
    return Shape("two peaks", _normalised(0.6 * _peak(2_200, 250) + 0.4 * _peak(6_300, 500)))


def all_shapes() -> tuple[Shape, ...]:
    """Return the mixture, an early, a late, and a spiky density over an even rest."""
    depths = np.arange(1, LENGTH + 1)
    spikes = np.full(LENGTH, 0.3 / LENGTH)
    for depth, weight in ((960, 0.3), (2_900, 0.15), (3_400, 0.15), (7_000, 0.1)):
        spikes[depth - 1] += weight
    return (
        two_peaks(),
        Shape("early", _normalised(np.exp(-depths / 1_200))),
        Shape("late", _normalised(np.exp((depths - LENGTH) / 700))),
        Shape("spikes and\n30% evenly", spikes),
    )


def _peak(centre: float, deviation: float) -> NDArray[np.float64]:
    depths = np.arange(1, LENGTH + 1)
    return _normalised(np.exp(-0.5 * ((depths - centre) / deviation) ** 2))


def _normalised(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(weights / weights.sum())
