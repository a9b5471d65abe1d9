"""What decays of the histogram lose while overlaps drift, and how much error each leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tree_placement.figures.drifting import (
    DEPTHS,
    LENGTH,
    STEP,
    SUPPORT,
    least_cost,
    peak,
    plug_in_cost,
)
from tree_placement.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    column_figure,
    thousands,
)
from tree_placement.overlap.guarantees import best_decay, decayed_error
from tree_placement.overlap.histogram import OverlapHistogram

PROMPTS = 2_000
DRIFT_STARTS, DRIFT_ENDS = 500, 1_500
EVERY = 25
REPETITIONS = 24
DECAYS = (0.9, 0.99, 0.999, 1.0)
SWEEP = 1.0 - np.geomspace(0.3, 0.0008, 15)
DEVIATION = 250.0
SPEED = 2.0
FARTHEST = 2.0
"""Distance that no two distributions exceed."""


class Drift(NamedTuple):
    """Regret over time.

    Parameters
    ----------
    prompts
        When it was measured, int64 of shape (times,).
    regret
        Mean recompute above the optimum in tokens, a row for each of `DECAYS`.
    """

    prompts: NDArray[np.int64]
    regret: NDArray[np.float64]


class Errors(NamedTuple):
    """Distance of the estimate from the truth, |.|_1, over `SWEEP`; float64 of one shape.

    Parameters
    ----------
    measured
        Mean after a long time of steady drift.
    bound
        Bound on its expectation.
    drift
        |.|_1 between the distributions of one overlap and of the next, at most.
    """

    measured: NDArray[np.float64]
    bound: NDArray[np.float64]
    drift: float


def centre(prompt: int) -> float:
    """Return the peak's depth in tokens when a prompt comes."""
    moved = min(max(prompt - DRIFT_STARTS, 0), DRIFT_ENDS - DRIFT_STARTS)
    return 1_000.0 + SPEED * moved


def measure_regret() -> Drift:
    """Let each decay's histogram follow a peak that rests, moves and rests again."""
    rng = np.random.default_rng(0)
    truths = [peak(centre(prompt), DEVIATION) for prompt in range(PROMPTS + 1)]
    times = range(EVERY, PROMPTS + 1, EVERY)
    optimum = {prompt: least_cost(truths[prompt]) for prompt in times}
    regret = np.zeros((len(DECAYS), len(times)))
    for _ in range(REPETITIONS):
        histograms = [OverlapHistogram(decay, bin=STEP) for decay in DECAYS]
        for prompt in range(PROMPTS):
            overlap = int(DEPTHS[rng.choice(SUPPORT, p=truths[prompt])])
            for histogram in histograms:
                histogram.observe(overlap)
            now = prompt + 1
            if now in optimum:
                for row, histogram in enumerate(histograms):
                    cost = plug_in_cost(truths[now], _estimate(histogram))
                    regret[row, now // EVERY - 1] += cost - optimum[now]
    return Drift(np.array(times), regret / REPETITIONS)


def measure_error() -> Errors:
    """Let decayed frequencies follow a peak that moves steadily."""
    rng = np.random.default_rng(1)
    warm_up, steps = 500, LENGTH // 3
    span = np.linspace(700.0, LENGTH - 700.0, warm_up + steps + 1)
    truths = np.array([peak(each, DEVIATION) for each in span])
    drift = float(np.abs(np.diff(truths, axis=0)).sum(axis=1).max())
    decays = SWEEP[:, None, None]
    mass = np.zeros((SWEEP.size, REPETITIONS, SUPPORT))
    total = np.zeros(SWEEP.size)
    error = np.zeros(SWEEP.size)
    for step in range(warm_up + steps):
        mass *= decays
        seen = rng.choice(SUPPORT, size=REPETITIONS, p=truths[step])
        mass[:, np.arange(REPETITIONS), seen] += 1.0
        total = total * SWEEP + 1.0
        if step >= warm_up:
            estimate = mass / total[:, None, None]
            error += np.abs(estimate - truths[step + 1]).sum(axis=2).mean(axis=1)
    bound = [
        decayed_error(SUPPORT, decay, warm_up + steps, drift).total for decay in SWEEP.tolist()
    ]
    return Errors(error / steps, np.array(bound), drift)


def draw() -> Figure:
    """Draw regret over time above, error over the decay below."""
    figure = column_figure(4.3)
    above, below = figure.subplots(2, 1)
    _draw_regret(above, measure_regret())
    _draw_error(below, measure_error())
    figure.legend(*below.get_legend_handles_labels(), loc="outside lower center")
    return figure


def _draw_regret(axes: Axes, drift: Drift) -> None:
    axes.axvspan(DRIFT_STARTS, DRIFT_ENDS, color="#F0F0F0", linewidth=0)
    styles = ((PURPLE, ":"), (BLUE, "-"), (GREEN, "-."), (ORANGE, "--"))
    for decay, regret, (color, line) in zip(DECAYS, drift.regret, styles, strict=True):
        axes.plot(drift.prompts, regret, color=color, linestyle=line, label=f"{decay:g}")
    axes.text(
        (DRIFT_STARTS + DRIFT_ENDS) / 2,
        1.0,
        "the peak moves",
        ha="center",
        va="bottom",
        transform=axes.get_xaxis_transform(),
        color=GREY,
    )
    axes.set_xlim(0, PROMPTS)
    axes.set_xticks(range(0, PROMPTS + 1, 500))
    thousands(axes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("prompts")
    axes.set_ylabel("recompute above\nthe optimum (tokens)")
    axes.legend(title="decay", loc="upper left", title_fontsize=7)


def _draw_error(axes: Axes, errors: Errors) -> None:
    best = best_decay(SUPPORT, errors.drift)
    says_something = errors.bound < FARTHEST
    axes.plot(
        1 - SWEEP[says_something],
        errors.bound[says_something],
        color=GREY,
        ls="--",
        label=f"bound, where below {FARTHEST:g}",
    )
    axes.plot(1 - SWEEP, errors.measured, color=BLUE, marker="o", label="measured, mean")
    axes.plot(
        [1 - best.decay],
        [best.error],
        color=RED,
        marker="*",
        ms=8,
        ls="none",
        label=f"best decay by the bound: {best.decay:.3f}",
    )
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("1 \N{MINUS SIGN} decay (longer memory to the right)")
    axes.set_ylabel("error of the forecast,\n$|\\cdot|_1$ (no unit)")


def _estimate(histogram: OverlapHistogram) -> NDArray[np.float64]:
    """Return the histogram's mass at each of the depths, which its bins hold one of."""
    bins = histogram.bins()
    weights = np.zeros(SUPPORT)
    weights[np.rint(bins.means / STEP).astype(np.int64) - 1] = bins.masses
    return weights
