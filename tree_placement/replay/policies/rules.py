"""A rule of placement and a rule of eviction, and the policy that they make together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from tree_placement.replay.simulator import Arrival, Cache, ReplayPolicy
from tree_placement.replay.states import State

Placement: TypeAlias = Callable[[Arrival, Cache], Iterable[int]]
"""Which depths of a request to write states at; those that cannot be written are left out."""

Eviction: TypeAlias = Callable[[Arrival, Cache], State]
"""Which state goes when one is to be written and no slot is free."""


class RulePolicy(ReplayPolicy):
    """Writes what one rule places, from the root down, and evicts by another, one at a time.

    Parameters
    ----------
    placement
        Called once a request.
    eviction
        Called once a state that finds no slot; it may name one that the request has just written.

    Examples
    --------
    >>> from tree_placement.replay import Budget, replay, trace_of_prompts
    >>> trace = trace_of_prompts([range(640), [*range(320), *range(900, 1000)]], block=16)
    >>> policy = RulePolicy(lambda arrival, cache: [192, 256], least_recently_used)
    >>> [served.hit for served in replay(trace, policy, Budget(slots=1))]
    [0, 256]
    """

    def __init__(self, placement: Placement, eviction: Eviction) -> None:
        self._placement = placement
        self._eviction = eviction

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Write the states of a request."""
        if cache.budget.slots == 0:
            return
        depths = cache.depths()
        for depth in sorted(set(self._placement(arrival, cache))):
            if depth not in depths or cache.lives_at(depth):
                continue
            if cache.is_full:
                cache.evict(self._eviction(arrival, cache))
            cache.write(depth)

    def forget(self, state: State) -> None:
        """Take note that a state goes; rules look at what lives, and remember nothing."""


def least_recently_used(arrival: Arrival, cache: Cache) -> State:
    """The state goes that no request has resumed from, or written, for longest. O(1) time.

    SGLang, vLLM and TensorRT-LLM evict so.
    """
    return next(iter(cache.live))


def least_gap_over_age(arrival: Arrival, cache: Cache) -> State:
    """The state goes whose gap is least over its age, in requests since its last use.

    What a state saves a hit is its gap to the next state above, and 1 / age estimates how often one
    comes. O(n) time for n live states.
    """
    return min(cache.live, key=lambda state: state.gap / _age(state, arrival))


def least_gap_and_hits_over_age(arrival: Arrival, cache: Cache) -> State:
    """The state goes of least gap times (hits + 1) over age. O(n) time for n live states."""
    return min(cache.live, key=lambda state: state.gap * (state.hits + 1) / _age(state, arrival))


def _age(state: State, arrival: Arrival) -> int:
    return arrival.number - state.used + 1
