"""Where prompts leave earlier ones: how deep, and how far from the earlier prompt's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tree_placement.figures.style import BLUE, PURPLE, column_figure

FIRST = 16
STEPS = 2
"""Bins in a doubling."""


class Distances(NamedTuple):
    """The overlaps of one trace in tokens, int64: from the start, and from the earlier end."""

    trace: str
    from_start: NDArray[np.int64]
    from_end: NDArray[np.int64]


def draw(traces: Sequence[Distances]) -> Figure:
    """Draw both distributions of each trace, at least one, over the logarithm of the distance.

    The first bar holds all distances below `FIRST` tokens.
    """
    figure = column_figure(0.95 * len(traces) + 0.75)
    rows = figure.subplots(len(traces), 2, sharex=True, sharey="row", squeeze=False)
    longest = max(int(array.max(initial=FIRST)) for _, *both in traces for array in both)
    doublings = int(np.ceil(np.log2(longest / FIRST))) + 1
    edges = FIRST * 2.0 ** (np.arange(-1, STEPS * doublings + 1) / STEPS)
    for row, (trace, *both) in zip(rows, traces, strict=True):
        for axes, distances, color in zip(row, both, (BLUE, PURPLE), strict=True):
            counts = np.histogram(np.maximum(distances, edges[0]), edges)[0]
            shares = counts / max(distances.size, 1)
            axes.stairs(shares, edges, fill=True, color=color, linewidth=0)
        row[0].set_title(f"{trace}, {both[0].size:,} overlaps", loc="left")
    for axes, name in zip(rows[-1], ("from the start", "from the earlier end"), strict=True):
        axes.set_xscale("log", base=2)
        ticks = [16**power for power in range(1, 6) if edges[0] < 16**power < edges[-1]]
        axes.set_xticks(ticks, [_short(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(f"tokens {name}")
    figure.supylabel("share of overlaps", fontsize="medium")
    return figure


def _short(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)
