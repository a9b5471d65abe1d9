"""What each policy saves over the slots that it has, a panel a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tree_placement.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    PURPLE,
    RED,
    SKY,
    column_figure,
)

CEILING, OURS = "offline_plan", "sparse"
_APART = (
    ("stock", ORANGE, "s"),
    ("vllm_align", GREEN, "v"),
    ("marconi", RED, "D"),
    ("tail_192", PURPLE, "^"),
    ("gapr_etb", SKY, "o"),
)
"""Policies that are told apart by colour and marker where they are drawn."""


class Curve(NamedTuple):
    """What a policy saves: a share of what a state at every grid depth would, a number of slots."""

    policy: str
    slots: tuple[int, ...]
    shares: tuple[float, ...]


class Panel(NamedTuple):
    """The curves of one trace."""

    trace: str
    curves: tuple[Curve, ...]


def draw(panels: Sequence[Panel]) -> Figure:
    """Draw the curves of each trace, at least one, over the logarithm of the slots."""
    rows = (len(panels) + 1) // 2
    figure = column_figure(1.6 * rows + 0.8)
    grid = figure.subplots(rows, min(len(panels), 2), sharey=True, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, panel)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.supylabel("share of what a state\nat every grid depth saves", fontsize="medium")
    entries = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=3)
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    named = {curve.policy: curve for curve in panel.curves}
    apart = {name: (color, marker) for name, color, marker in _APART}
    others = [name for name in named if name not in (CEILING, OURS, *apart)]
    if CEILING in named:
        line = named[CEILING]
        axes.plot(line.slots, line.shares, color=GREY, ls="--", label="offline plan")
    for name in others:
        axes.plot(
            named[name].slots,
            named[name].shares,
            color=PALE,
            linewidth=0.7,
            zorder=1,
            label=name if len(others) == 1 else "other rules",
        )
    for name, (color, marker) in apart.items():
        if name in named:
            line = named[name]
            axes.plot(line.slots, line.shares, color=color, marker=marker, ms=3, label=name)
    if OURS in named:
        line = named[OURS]
        axes.plot(line.slots, line.shares, color=BLUE, linewidth=1.8, marker="o", label=OURS)
    ticks = sorted({slots for curve in panel.curves for slots in curve.slots})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{slots:,}" for slots in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 1.03)
    axes.set_title(panel.trace)
    axes.set_xlabel("slots")
