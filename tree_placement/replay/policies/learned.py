"""The placement of the sparse-prefix-caching paper: one histogram of overlaps, and its optimum."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tree_placement.replay.policies.placements import evenly_spaced
from tree_placement.replay.simulator import Arrival, Cache

BIN = 64
DECAY = 0.99
INTERVAL = 10
"""Requests from one solution to the next."""


class LearnedPlacement:
    """The same number of states on each prompt, at the optimum for the overlaps seen so far.

    Shirokikh and Nikolenko's dynamic program over one decayed histogram for all prompts, in bins of
    64 tokens, evenly spaced until it is first solved ("Sparse Prefix Caching for Hybrid and
    Recurrent LLM Serving", arXiv 2605.05219). All states are placed, also those that serve no
    overlap seen: where several places are equally good, rounding decides.

    Parameters
    ----------
    count
        States on a prompt, >= 1.

    Examples
    --------
    >>> from tree_placement.replay import Budget, replay, trace_of_prompts
    >>> from tree_placement.replay.policies.rules import RulePolicy, least_recently_used
    >>> prompts = [[*range(200), *range(first, first + 600)] for first in range(1_000, 13_000, 600)]
    >>> policy = RulePolicy(LearnedPlacement(1), least_recently_used)
    >>> served = replay(trace_of_prompts(prompts, 10), policy, Budget(slots=8))
    >>> served[9].hit, served[19].hit
    (0, 192)
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._even = evenly_spaced(count)
        self._histogram = DecayedHistogram()
        self._solution: NDArray[np.int32] | None = None

    def __call__(self, arrival: Arrival, cache: Cache) -> Iterable[int]:
        """Return the depths for a request, whose overlap is counted first."""
        from tree_placement.replay.policies._layers import chosen, last_states

        self._histogram.observe(arrival.overlap, arrival.length)
        if arrival.number % INTERVAL == INTERVAL - 1:
            self._solution = last_states(self._histogram.masses(), self._count)
        if self._solution is None:
            return self._even(arrival, cache)
        bin = min(arrival.length // BIN, self._solution.shape[1] - 1)
        return [cache.floor(state * BIN) for state in chosen(self._solution, bin)]


class DecayedHistogram:
    """Overlaps in bins of `BIN` tokens, each request weighing `DECAY` of the one after it.

    Examples
    --------
    >>> histogram = DecayedHistogram()
    >>> histogram.observe(70, 150)
    >>> histogram.observe(0, 80)
    >>> histogram.masses()
    array([1.  , 0.99, 0.  ])
    """

    def __init__(self) -> None:
        self._masses = np.zeros(1)

    def observe(self, overlap: int, length: int) -> None:
        """Count an overlap; there are bins for all of the prompt's `length` at least."""
        missing = length // BIN + 1 - self._masses.size
        if missing > 0:
            self._masses = np.concatenate((self._masses, np.zeros(missing)))
        self._masses *= DECAY
        self._masses[overlap // BIN] += 1.0

    def masses(self) -> NDArray[np.float64]:
        """Return the weight of each bin, from depth 0 on."""
        return self._masses
