"""Overlap density over the saw-tooth of recompute: evenly spaced states beside the optimal ones."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tree_placement.cost import expected_recompute
from tree_placement.figures.shapes import GRID, LENGTH, Shape, all_shapes
from tree_placement.figures.style import BLUE, PALE, RED, column_figure, thousands
from tree_placement.path import balanced, place

STATES = 6
TOP = 5_000


def sawtooth(depths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the corners (overlap depth, tokens to recompute) of the saw-tooth, of shape (n, 2)."""
    corners: list[tuple[float, float]] = []
    above = 0
    for depth in [*depths.tolist(), LENGTH]:
        corners += [(above, 0.0), (depth, depth - above)]
        above = depth
    return np.array(corners, dtype=np.float64)


def draw() -> Figure:
    """Draw four densities, each under both placements of as many states."""
    shapes = all_shapes()
    figure = column_figure(0.9 * len(shapes) + 0.9)
    grid = figure.subplots(len(shapes), 2, sharex=True, sharey=True, squeeze=False)
    for row, shape in zip(grid, shapes, strict=True):
        even = balanced(LENGTH, STATES, grid=GRID)
        optimal = place(shape.weights, STATES, grid=GRID).depths
        for axes, depths in zip(row, (even, optimal), strict=True):
            _draw_panel(axes, shape, depths)
        row[0].set_ylabel(shape.name)
    for axes, name in zip(grid[0], ("evenly spaced", "optimal"), strict=True):
        axes.set_title(f"{name}\n{axes.get_title()}")
    figure.supylabel("recompute (tokens)", fontsize="medium")
    for axes in grid[-1]:
        axes.set_xlabel("overlap depth (tokens)")
        axes.set_xticks([0, 4_096, 8_192])
        thousands(axes)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, columnspacing=1.2)
    return figure


def _draw_panel(axes: Axes, shape: Shape, depths: NDArray[np.int64]) -> None:
    masses = shape.weights.reshape(-1, GRID).sum(axis=1)
    axes.stairs(
        masses * (0.8 * TOP / masses.max()),
        np.arange(0, LENGTH + 1, GRID),
        fill=True,
        color=PALE,
        linewidth=0,
        label="density (scaled)",
    )
    axes.plot(*sawtooth(depths).T, color=BLUE, linewidth=0.9, label="recompute")
    axes.plot(
        depths,
        np.zeros(depths.size),
        color=RED,
        linestyle="none",
        marker="^",
        markersize=4,
        clip_on=False,
        zorder=3,
        label="state",
    )
    mean = expected_recompute(shape.weights, depths)
    axes.set_title(f"mean {mean:,.0f} tokens", pad=3)
    axes.set_xlim(0, LENGTH)
    axes.set_ylim(0, TOP)
    axes.set_yticks([0, 2_500, 5_000], ["0", "2,500", "5,000"])
