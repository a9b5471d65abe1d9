"""How all figures look, and how one becomes a file."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLUMN = 86 / 25.4
"""Width of a journal's column, in inches."""

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
)
"""Colours that stay apart for colour-blind readers (Okabe and Ito, "Color universal design")."""

GREY, PALE = "#555555", "#CCCCCC"

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
    "svg.hashsalt": "tree_placement",
    "savefig.dpi": 300,
}


class Picture(NamedTuple):
    """A figure that can be drawn.

    Parameters
    ----------
    name
        Of its file, without the ending.
    draw
        Computes what it shows, and draws it.
    """

    name: str
    draw: Callable[[], Figure]


def drawn(picture: Picture) -> Figure:
    """Return the figure, in the style of all."""
    with _style():
        return picture.draw()


def render(picture: Picture, format: str) -> bytes:
    """Return the figure as the bytes of a file: pdf, png or svg, the same ones each time."""
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    file = io.BytesIO()
    with _style():
        picture.draw().savefig(file, format=format, metadata=undated.get(format))
    return file.getvalue()


def column_figure(height: float) -> Figure:
    """Return an empty figure one column wide and `height` inches high."""
    figure = Figure(figsize=(COLUMN, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def thousands(axes: Axes) -> None:
    """Write the numbers of the depth axis with separators: 8,192."""
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


@contextmanager
def _style() -> Iterator[None]:
    """Set matplotlib's own defaults and `STYLE`, whatever the user's settings, for the block."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield
