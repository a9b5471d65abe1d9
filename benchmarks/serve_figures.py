"""Prefill time over recomputed tokens, measured: a figure and the table of what it shows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from serve_report import Comparison
from serve_servers import Timed

from tree_placement.cli.files import write_files
from tree_placement.figures import Picture, render
from tree_placement.figures.style import BLUE, GREEN, GREY, ORANGE, column_figure, thousands

_STYLES = {"stock": (ORANGE, "s"), "stock_python": (GREEN, "^"), "sparse": (BLUE, "o")}


def write_figure(folder: Path, comparison: Comparison, whole: Sequence[Timed]) -> None:
    """Write `prefill_time.pdf` and `.csv` into a folder, which is made if need be."""
    picture = Picture("prefill_time", lambda: _drawn(comparison, whole))
    table = _table(comparison, whole)
    write_files(folder, {"prefill_time.pdf": render(picture, "pdf"), "prefill_time.csv": table})


def _drawn(comparison: Comparison, whole: Sequence[Timed]) -> Figure:
    figure = column_figure(3.0)
    axes = figure.subplots()
    prefill = comparison.prefill
    longest = max(each.tokens for each in whole)
    tokens = np.linspace(0, longest, 200)
    seconds = prefill.overhead + prefill.cost(tokens)
    axes.plot(tokens, seconds, color=GREY, ls="--", label="fitted, nothing cached")
    for measured in comparison.measured:
        color, marker = _STYLES[measured.variant.name]
        axes.plot(
            [answer.prompt_tokens - answer.cached_tokens for answer in measured.answers],
            measured.first_tokens,
            color=color,
            marker=marker,
            ms=2.5,
            ls="none",
            alpha=0.6,
            label=measured.variant.name,
        )
    restoring = prefill.restoring(
        answer for measured in comparison.measured for answer in measured.answers
    )
    if restoring is not None:
        axes.axhline(
            prefill.overhead + restoring,
            color=GREY,
            ls=":",
            label=f"restoring a state: {1e3 * restoring:+.0f} ms",
        )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("recomputed tokens")
    axes.set_ylabel("time to first token (s)")
    thousands(axes)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _table(comparison: Comparison, whole: Sequence[Timed]) -> bytes:
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("server", "request", "tokens", "cached", "seconds"))
    table.writerows(("whole prefill", "", each.tokens, 0, f"{each.seconds:.6f}") for each in whole)
    for measured in comparison.measured:
        for number, answer in enumerate(measured.answers):
            prompt = (number, answer.prompt_tokens, answer.cached_tokens)
            table.writerow((measured.variant.name, *prompt, f"{answer.first_token:.6f}"))
    return text.getvalue().encode()
