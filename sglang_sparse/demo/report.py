"""What the demo measured: two tables on the terminal, one JSON file."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from sglang_sparse.demo.comparison import (
    TOLERANCE,
    TOP,
    Answer,
    Comparison,
    Totals,
    by_group,
    gap,
    totals,
)

GAP = "gap: tokens computed although an earlier prompt had the same tokens in the same place"
_SERVERS = ("stock", "sparse")


def print_report(console: Console, comparisons: Sequence[Comparison]) -> None:
    """Print each prompt, each group and the verdict."""
    console.print(_prompt_table(comparisons), "")
    console.print(f"{GAP}\n", highlight=False, soft_wrap=True)
    console.print(_group_table(comparisons), "")
    stock, sparse = (_totals(comparisons, server) for server in _SERVERS)
    console.print(
        f"gap, summed: stock {stock.gap}, sparse {sparse.gap}\n"
        f"time to first token, summed: stock {stock.first_token:.2f} s, sparse "
        f"{sparse.first_token:.2f} s (the servers ran one after the other: compare the times of "
        "prompts with equal gaps before these)",
        highlight=False,
        soft_wrap=True,
    )
    identical = _identical(comparisons)
    style = "green" if identical == len(comparisons) else "red"
    console.print(f"[bold {style}]outputs identical: {identical}/{len(comparisons)}[/]")
    console.print(
        f"(token ids, and top-{TOP} log-probabilities within {TOLERANCE:g}; "
        f"largest difference {_largest(comparisons):.1e})",
        highlight=False,
        soft_wrap=True,
    )


def _table(first: str, figures: Sequence[str], shared: Sequence[str] = ()) -> Table:
    """Return an empty table: a name, figures of both servers alike, figures of each server."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column(first, no_wrap=True)
    for figure in shared:
        table.add_column(figure, justify="right", no_wrap=True)
    for figure in figures:
        for server in _SERVERS:
            heading = f"{figure}\n{server}"
            table.add_column(heading, justify="right", no_wrap=True, style=_style(server))
    return table


def _prompt_table(comparisons: Sequence[Comparison]) -> Table:
    table = _table("prompt", ("cached", "gap", "first\ntoken, s"), ("tokens", "seen\nbefore"))
    table.add_column("states\nsparse", justify="right", style=_style("sparse"))
    for members in by_group(comparisons).values():
        for comparison in members:
            table.add_row(*_prompt_row(comparison))
        table.add_section()
    return table


def _prompt_row(comparison: Comparison) -> list[str]:
    prompt, stock, sparse = comparison
    both = (stock, sparse)
    return [
        prompt.name,
        str(len(prompt.tokens)),
        str(prompt.seen),
        *(str(answer.completion.cached_tokens) for answer in both),
        *(str(gap(prompt, answer)) for answer in both),
        *(f"{answer.completion.first_token:.2f}" for answer in both),
        "" if sparse.states is None else str(sparse.states),
    ]


def _group_table(comparisons: Sequence[Comparison]) -> Table:
    figures = ("cached,\nsum", "gap,\nsum", "first\ntoken, s\nsum", "first\ntoken, s\nmedian")
    table = _table("group", figures)
    for group, members in by_group(comparisons).items():
        table.add_row(*_group_row(group.value, members))
    table.add_section()
    table.add_row(*_group_row("all", comparisons), style="bold")
    return table


def _group_row(name: str, members: Sequence[Comparison]) -> list[str]:
    both = [_totals(members, server) for server in _SERVERS]
    return [
        f"{name} ({len(members)})",
        *(str(each.cached) for each in both),
        *(str(each.gap) for each in both),
        *(f"{each.first_token:.2f}" for each in both),
        *(f"{each.median_first_token:.2f}" for each in both),
    ]


def write_json(file: Path, comparisons: Sequence[Comparison], settings: dict[str, Any]) -> None:
    """Write all figures to `file`, which appears complete or not at all.

    Parameters
    ----------
    file
        Replaced where it exists.
    comparisons
        One for each prompt, in sending order.
    settings
        The demo's arguments, by name; written along.
    """
    report = {
        "settings": settings,
        "machine": {"processor": platform.machine(), "cores": len(os.sched_getaffinity(0))},
        "prompts": [_prompt_record(comparison) for comparison in comparisons],
        "totals": {server: _totals(comparisons, server)._asdict() for server in _SERVERS},
        "identical": _identical(comparisons),
        "largest_difference": _largest(comparisons),
    }
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}-") as scratch:
        new = Path(scratch, file.name)
        new.write_text(json.dumps(report, indent=2, default=str) + "\n", encoding="utf-8")
        new.replace(file)


def _prompt_record(comparison: Comparison) -> dict[str, Any]:
    prompt = comparison.prompt
    return {
        "name": prompt.name,
        "group": prompt.group.value,
        "tokens": len(prompt.tokens),
        "seen": prompt.seen,
        "identical": comparison.is_identical,
        "difference": comparison.difference,
        "stock": _answer_record(comparison, comparison.stock),
        "sparse": _answer_record(comparison, comparison.sparse),
    }


def _answer_record(comparison: Comparison, answer: Answer) -> dict[str, Any]:
    return {
        "cached": answer.completion.cached_tokens,
        "gap": gap(comparison.prompt, answer),
        "first_token": answer.completion.first_token,
        "total": answer.completion.total,
        "states": answer.states,
        "output": answer.completion.tokens,
    }


def _totals(comparisons: Sequence[Comparison], server: str) -> Totals:
    prompts = [comparison.prompt for comparison in comparisons]
    return totals(prompts, [getattr(comparison, server) for comparison in comparisons])


def _identical(comparisons: Sequence[Comparison]) -> int:
    return sum(comparison.is_identical for comparison in comparisons)


def _largest(comparisons: Sequence[Comparison]) -> float:
    return max(comparison.difference for comparison in comparisons)


def _style(server: str) -> str:
    return "cyan" if server == "sparse" else ""
