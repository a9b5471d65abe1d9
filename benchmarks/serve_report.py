"""What a comparison of servers prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from serve_prediction import Predicted, PrefillTime
from serve_servers import Measured

CLOSE = 0.01
"""Share of tokens by which a replay may differ from what a server did."""


class Comparison(NamedTuple):
    """What servers did with prompts of some lengths, the replay's prediction beside each."""

    lengths: Sequence[int]
    measured: Sequence[Measured]
    predicted: Sequence[Predicted]
    prefill: PrefillTime

    @property
    def tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(self.lengths)


def print_report(comparison: Comparison, oracle: int) -> None:
    """Print the table, and how far the replay is from what each server did."""
    reference = comparison.measured[0].variant.name
    table = Table(
        "", *(each.variant.name for each in comparison.measured), title=_title(comparison)
    )
    for name, cells in _rows(comparison):
        table.add_row(name, *cells)
    Console().print(table)
    print(f"a state at every grid depth would serve {oracle / comparison.tokens:.4f}")
    for measured, predicted in zip(comparison.measured, comparison.predicted, strict=True):
        print(_distance(comparison, measured, predicted))
    for measured, predicted in list(zip(comparison.measured, comparison.predicted, strict=True))[
        1:
    ]:
        print(_ratio(comparison, measured, predicted, reference))
    print(_prefill(comparison))
    for measured in comparison.measured:
        if measured.counters is not None:
            print(f"{measured.variant.name}: counters {measured.counters}")


def _title(comparison: Comparison) -> str:
    return f"{len(comparison.lengths)} requests, {comparison.tokens:,} tokens"


def _rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    measured, tokens = comparison.measured, comparison.tokens
    times = [np.array(each.first_tokens) for each in measured]
    totals = [sum(answer.total for answer in each.answers) for each in measured]
    made = [tokens + sum(len(answer.tokens) for answer in each.answers) for each in measured]
    return [
        ("share of tokens from cache", [f"{each.cached / tokens:.4f}" for each in measured]),
        (
            "  as the replay predicts",
            [f"{sum(each.hits) / tokens:.4f}" for each in comparison.predicted],
        ),
        ("time to first token, sum (s)", [f"{each.sum():.3f}" for each in times]),
        ("  p50 (ms)", [f"{1e3 * np.quantile(each, 0.5):.1f}" for each in times]),
        ("  p95 (ms)", [f"{1e3 * np.quantile(each, 0.95):.1f}" for each in times]),
        ("time per output token, mean (ms)", [_per_output_token(each) for each in measured]),
        (
            "throughput (tokens/s, in and out)",
            [f"{count / total:,.0f}" for count, total in zip(made, totals, strict=True)],
        ),
        (
            "peak memory of the scheduler (MiB)",
            [f"{each.peak_memory / 2**20:,.0f}" for each in measured],
        ),
        (
            "states live at the end",
            ["" if each.states is None else str(each.states) for each in measured],
        ),
        ("  as the replay predicts", [str(each.states) for each in comparison.predicted]),
        (f"outputs unlike {measured[0].variant.name}", [str(each.differing) for each in measured]),
        ("  largest difference", [f"{each.worst:.1e}" for each in measured]),
    ]


def _per_output_token(measured: Measured) -> str:
    steps = sum(len(answer.tokens) - 1 for answer in measured.answers)
    seconds = sum(answer.total - answer.first_token for answer in measured.answers)
    return f"{1e3 * seconds / steps:.2f}" if steps else ""


def _distance(comparison: Comparison, measured: Measured, predicted: Predicted) -> str:
    hits = [answer.cached_tokens for answer in measured.answers]
    apart = [number for number, hit in enumerate(hits) if hit != predicted.hits[number]]
    share = (sum(predicted.hits) - sum(hits)) / comparison.tokens
    verdict = "within" if abs(share) <= CLOSE else "NOT within"
    text = f"{measured.variant.name}: the replay is {share:+.4f} of share away, {verdict} {CLOSE}"
    if not apart:
        return f"{text}; every hit is the same"
    first = apart[0]
    return (
        f"{text}; {len(apart)} of {len(hits)} hits differ, the first is request {first}: "
        f"{hits[first]} served, {predicted.hits[first]} predicted"
    )


def _ratio(comparison: Comparison, measured: Measured, predicted: Predicted, reference: str) -> str:
    did = sum(measured.first_tokens) / sum(comparison.measured[0].first_tokens)
    would = comparison.prefill.total(predicted.hits, comparison.lengths)
    would /= comparison.prefill.total(comparison.predicted[0].hits, comparison.lengths)
    name = measured.variant.name
    return f"{name} over {reference}, summed time to first token: {did:.3f}, predicted {would:.3f}"


def _prefill(comparison: Comparison) -> str:
    prefill = comparison.prefill
    resumed = prefill.restoring(
        answer for measured in comparison.measured for answer in measured.answers
    )
    restoring = "" if resumed is None else f"; a resumed request takes {1e3 * resumed:+.1f} ms more"
    return (
        f"prefill time: {1e3 * prefill.overhead:.1f} ms, {1e6 * prefill.cost.linear:.2f} "
        f"microseconds a token, {1e12 * prefill.cost.quadratic:.2f} picoseconds a token and token "
        f"above it{restoring}"
    )
