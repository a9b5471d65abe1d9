"""What placement on an estimated distribution loses, over the number of observations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tree_placement.figures.drifting import LENGTH, SUPPORT, least_cost, peak, plug_in_cost
from tree_placement.figures.style import BLUE, GREY, ORANGE, column_figure, thousands
from tree_placement.overlap.guarantees import estimation_error, plug_in_regret

SIZES = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
REPETITIONS = 200
FAILURE = 0.1


class Losses(NamedTuple):
    """What was measured, over `SIZES`; all in tokens, float64 of the same shape.

    Parameters
    ----------
    mean
        Mean regret.
    high
        The regret that a share `FAILURE` of the repetitions exceeds.
    known
        Mean bound on it with the true distance in place of its bound.
    bound
        The bound that the regret exceeds with probability `FAILURE` at most.
    """

    mean: NDArray[np.float64]
    high: NDArray[np.float64]
    known: NDArray[np.float64]
    bound: NDArray[np.float64]


def measure() -> Losses:
    """Draw observations, place on their frequencies, and compare with the optimum."""
    rng = np.random.default_rng(0)
    truth = 0.6 * peak(1_100, 160) + 0.4 * peak(3_100, 350)
    optimum = least_cost(truth)
    regret = np.empty((len(SIZES), REPETITIONS))
    known = np.empty_like(regret)
    for row, size in enumerate(SIZES):
        for column in range(REPETITIONS):
            estimate = rng.multinomial(size, truth) / size
            regret[row, column] = plug_in_cost(truth, estimate) - optimum
            known[row, column] = plug_in_regret(LENGTH, float(np.abs(estimate - truth).sum()))
    bound = [plug_in_regret(LENGTH, estimation_error(SUPPORT, size, FAILURE)) for size in SIZES]
    return Losses(
        mean=regret.mean(axis=1),
        high=np.quantile(regret, 1.0 - FAILURE, axis=1),
        known=known.mean(axis=1),
        bound=np.array(bound),
    )


def draw() -> Figure:
    """Draw the losses, with logarithms on both axes."""
    losses = measure()
    figure = column_figure(3.1)
    axes = figure.subplots()
    confident = f"bound, holds with probability {1.0 - FAILURE:g}"
    axes.plot(SIZES, losses.bound, color=GREY, linestyle="--", label=confident)
    known = "bound given the true error, mean"
    axes.plot(SIZES, losses.known, color=ORANGE, linestyle="-.", label=known)
    share = f"measured, {100 * (1.0 - FAILURE):g}th percentile"
    axes.plot(SIZES, losses.high, color=BLUE, linewidth=0.8, marker="v", label=share)
    axes.plot(SIZES, losses.mean, color=BLUE, linewidth=1.6, label="measured, mean")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("observed overlaps")
    axes.set_ylabel("recompute above\nthe optimum (tokens)")
    thousands(axes)
    figure.legend(loc="outside lower center", ncols=1)
    return figure
