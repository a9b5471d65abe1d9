"""Expected recompute over the number of states, for every strategy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tree_placement.cost import expected_recompute
from tree_placement.figures.shapes import GRID, LENGTH, two_peaks
from tree_placement.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    column_figure,
)
from tree_placement.path import balanced, place
from tree_placement.path.spacing import block, logarithmic, square_root

BUDGETS = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
DOUBLINGS = tuple(2**power for power in range(8))


class Curve(NamedTuple):
    """What one strategy reaches.

    Parameters
    ----------
    name
        For the reader.
    counts
        Numbers of states, int64, rising.
    costs
        Expected recompute in tokens, float64 of the same shape.
    """

    name: str
    counts: NDArray[np.int64]
    costs: NDArray[np.float64]


def curves() -> tuple[Curve, ...]:
    """Return the curves of all strategies on the mixture of two peaks."""
    weights = two_peaks().weights

    def curve(name: str, placements: list[NDArray[np.int64]]) -> Curve:
        placements = sorted(placements, key=len)
        costs = [expected_recompute(weights, depths) for depths in placements]
        return Curve(name, np.array([each.size for each in placements]), np.array(costs))

    sizes = [GRID * doubling for doubling in DOUBLINGS]
    return (
        curve("none", [np.empty(0, dtype=np.int64)]),
        curve("logarithmic", [logarithmic(LENGTH, size, grid=GRID) for size in sizes]),
        curve("block", [block(LENGTH, size, grid=GRID) for size in sizes]),
        curve("square root", [square_root(LENGTH, grid=GRID)]),
        curve("balanced", [balanced(LENGTH, budget, grid=GRID) for budget in BUDGETS]),
        curve("optimal", [place(weights, budget, grid=GRID).depths for budget in BUDGETS]),
    )


def draw() -> Figure:
    """Draw the curves, with logarithms on both axes."""
    figure = column_figure(2.6)
    axes = figure.subplots()
    none, logs, blocks, root, even, optimal = curves()
    axes.axhline(none.costs[0], color=GREY, linestyle=(0, (1, 1.5)), label=none.name)
    axes.plot(logs.counts, logs.costs, color=PURPLE, marker="D", ls="--", label=logs.name)
    axes.plot(blocks.counts, blocks.costs, color=ORANGE, marker="s", ls="--", label=blocks.name)
    axes.plot(even.counts, even.costs, color=GREEN, ls="-.", label=even.name)
    axes.plot(optimal.counts, optimal.costs, color=BLUE, linewidth=1.6, label=optimal.name)
    axes.plot(root.counts, root.costs, color=RED, marker="*", ms=8, ls="none", label=root.name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64, 128], ["1", "2", "4", "8", "16", "32", "64", "128"])
    axes.minorticks_off()
    axes.set_yticks([30, 100, 300, 1_000, 3_000], ["30", "100", "300", "1,000", "3,000"])
    axes.set_ylim(25, 5_000)
    axes.set_xlabel("states on the path")
    axes.set_ylabel("expected recompute (tokens)")
    axes.legend(loc="lower left")
    return figure
