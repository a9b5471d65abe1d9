"""A rule of placement and a rule of eviction, and the policy that they make together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from tree_placement.replay.simulator import Arrival, Cache
from tree_placement.replay.states import State

Placement: TypeAlias = Callable[[Arrival, Cache], Iterable[int]]
"""Which depths of a request to write states at; those that cannot be written are left out."""


class Eviction(Protocol):
    """Which state goes when one is to be written and no slot is free."""

    def pass_by(self, arrival: Arrival) -> None:
        """Take note of a request before it is served."""

    def add(self, state: State) -> None:
        """Take note of a new state."""

    def forget(self, state: State) -> None:
        """Take note that a state goes."""

    def victim(self, arrival: Arrival) -> State:
        """Return the state to give up."""


class LeastRecentlyUsed:
    """The state unused longest goes; only the state that a request resumes from is used."""

    def __init__(self) -> None:
        self._order: dict[State, None] = {}

    def pass_by(self, arrival: Arrival) -> None:
        """Take note of a request before it is served."""
        if arrival.path:
            source = arrival.path[0]
            del self._order[source]
            self._order[source] = None

    def add(self, state: State) -> None:
        """Take note of a new state."""
        self._order[state] = None

    def forget(self, state: State) -> None:
        """Take note that a state goes."""
        del self._order[state]

    def victim(self, arrival: Arrival) -> State:
        """Return the state to give up."""
        return next(iter(self._order))


class RulePolicy:
    """Writes what one rule places, from the root down, and evicts by another, one at a time.

    Parameters
    ----------
    placement
        Called once a request.
    eviction
        None where states never go.
    """

    def __init__(self, placement: Placement, eviction: Eviction | None) -> None:
        self._placement = placement
        self._eviction = eviction

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Write the states of a request."""
        if self._eviction is not None:
            self._eviction.pass_by(arrival)
        if cache.budget.slots == 0:
            return
        depths = cache.depths()
        for depth in sorted(set(self._placement(arrival, cache))):
            if depth not in depths or cache.lives_at(depth):
                continue
            if self._eviction is None:
                cache.write(depth)
                continue
            if cache.is_full:
                cache.evict(self._eviction.victim(arrival))
            self._eviction.add(cache.write(depth))

    def forget(self, state: State) -> None:
        """Take note that a state goes."""
        if self._eviction is not None:
            self._eviction.forget(state)


def dense() -> RulePolicy:
    """Every grid depth, for ever: what a state cache as dense as its grid would serve."""
    return RulePolicy(lambda _, cache: cache.depths(), None)
