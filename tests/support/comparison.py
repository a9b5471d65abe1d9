"""Outputs held against each other: tokens, and log-probabilities of the likeliest ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sglang_sparse.demo.server import Completion, Likely
from support.truth import Step

TOLERANCE = 1e-5
"""Largest difference of log-probabilities between equal computations in float32."""


def largest_difference(
    one: Completion | Sequence[Step], other: Completion, *, same_tokens: bool = True
) -> float:
    """Return the largest difference of log-probabilities over all steps.

    Infinity where the tokens differ, if they should be the same. A token that only one side lists
    counts by how far it lies above the other side's smallest.
    """
    if isinstance(one, Completion):
        tokens, tops = one.tokens, one.top
    else:
        tokens = tuple(step.token for step in one)
        tops = tuple(tuple(Likely(*likely) for likely in step.top) for step in one)
    if (same_tokens and tokens != other.tokens) or len(tops) != len(other.top):
        return float("inf")
    return max(
        (max(_excess(a, b), _excess(b, a)) for a, b in zip(tops, other.top, strict=True)),
        default=0.0,
    )


def _excess(one: Iterable[Likely], other: Iterable[Likely]) -> float:
    listed = dict(other)
    smallest = min(listed.values())
    return max(
        abs(logprob - listed[token]) if token in listed else max(0.0, logprob - smallest)
        for token, logprob in one
    )
