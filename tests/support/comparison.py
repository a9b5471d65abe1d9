"""Outputs held against each other: tokens, and log-probabilities of the likeliest ones."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_sparse.demo import comparison
from sglang_sparse.demo.server import Completion, Likely
from support.truth import Step

TOLERANCE = comparison.TOLERANCE
"""Largest difference of log-probabilities between equal computations in float32."""


def largest_difference(
    one: Completion | Sequence[Step], other: Completion, *, same_tokens: bool = True
) -> float:
    """Return the largest difference of log-probabilities over all steps.

    Infinity where the tokens differ, if they should be the same.
    """
    first = one if isinstance(one, Completion) else _completion(one)
    if same_tokens and first.tokens != other.tokens:
        return float("inf")
    return comparison.largest_difference(first, other)


def _completion(steps: Sequence[Step]) -> Completion:
    return Completion(
        tokens=tuple(step.token for step in steps),
        top=tuple(tuple(Likely(*likely) for likely in step.top) for step in steps),
        prompt_tokens=0,
        cached_tokens=0,
        first_token=0.0,
        total=0.0,
    )
