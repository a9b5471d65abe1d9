"""What `replay` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tree_placement.replay.summary import Saving, Summary


@dataclass(frozen=True, kw_only=True)
class Run:
    """One policy under one budget; `slots` is None without a bound.

    `summary` is None for the upper bound, of which only `saving` is known.
    """

    policy: str
    slots: int | None
    saving: Saving
    summary: Summary | None


def as_json(run: Run) -> str:
    """Return one JSON object of a run."""
    report: dict[str, object] = {"policy": run.policy, "slots": run.slots, **_figures(run.saving)}
    if run.summary is not None:
        report |= {
            "states_written": run.summary.states_written,
            "states_live": run.summary.states_live,
            "by_shape": {
                shape.value: _figures(saving) for shape, saving in run.summary.by_shape.items()
            },
            "by_depth": {
                str(depth): _figures(saving) for depth, saving in run.summary.by_depth.items()
            },
        }
    return json.dumps(report)


def as_table(runs: Sequence[Run]) -> str:
    """Return a table with a row a run; of a single run, its parts as well."""
    rows = [("policy", "slots", *_HEAD, "written", "live")]
    for run in runs:
        slots = "any" if run.slots is None else f"{run.slots:,}"
        counts = ("", "")
        if run.summary is not None:
            counts = (f"{run.summary.states_written:,}", f"{run.summary.states_live:.1f}")
        rows.append((run.policy, slots, *_cells(run.saving), *counts))
    tables = [_aligned(rows)]
    if len(runs) == 1 and runs[0].summary is not None:
        tables += _parts(runs[0].summary)
    return "\n\n".join(tables)


_HEAD = ("of tokens", "of dense", "gap per hit")


def _parts(summary: Summary) -> list[str]:
    shapes = [
        (shape.value, f"{saving.requests:,}", *_cells(saving))
        for shape, saving in summary.by_shape.items()
        if saving.requests
    ]
    depths = [
        (f"{depth:,}", f"{saving.requests:,}", *_cells(saving))
        for depth, saving in summary.by_depth.items()
    ]
    return [
        _aligned([("tree", "requests", *_HEAD), *shapes]),
        _aligned([("overlap from", "requests", *_HEAD), *depths]),
    ]


def _cells(saving: Saving) -> tuple[str, str, str]:
    return (
        f"{saving.share_of_tokens:.4f}",
        f"{saving.share_of_dense_oracle:.4f}",
        f"{saving.gap_per_hit:,.0f}" if saving.overlaps else "",
    )


def _figures(saving: Saving) -> dict[str, float]:
    return {
        "requests": saving.requests,
        "tokens": saving.tokens,
        "hit_tokens": saving.hit,
        "share_of_tokens": saving.share_of_tokens,
        "share_of_dense_oracle": saving.share_of_dense_oracle,
        "gap_per_hit": saving.gap_per_hit,
    }


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
