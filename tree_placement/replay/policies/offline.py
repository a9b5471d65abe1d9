"""A plan that knows the future: what a policy could hope for."""

from __future__ import annotations

from collections.abc import Sequence

from tree_placement.replay.foresight import Use, best_uses, possible_uses
from tree_placement.replay.simulator import Arrival, Budget, Cache, ReplayPolicy, replay
from tree_placement.replay.states import State
from tree_placement.replay.trace import Trace

NEVER = 1 << 62


def offline_plan(trace: Trace, budget: Budget) -> OfflinePlan:
    """Return a plan for a trace that is replayed under a budget.

    It is made twice, the second time without the uses that the first could not carry out.

    Examples
    --------
    >>> from tree_placement.replay import trace_of_prompts
    >>> prompts = [range(640), range(900, 1540), range(700), range(900, 1600)]
    >>> trace, budget = trace_of_prompts(prompts, 16), Budget(slots=2)
    >>> [served.hit for served in replay(trace, offline_plan(trace, budget), budget)]
    [0, 0, 640, 640]
    """
    uses = possible_uses(trace, budget.grid)
    slots = budget.slots if budget.slots is not None else len(uses)
    draft = OfflinePlan(uses, slots)
    replay(trace, draft, budget)
    feasible = [tuple(use for use in each if use not in draft.missed) for each in uses]
    return OfflinePlan(feasible, slots)


class OfflinePlan(ReplayPolicy):
    """Carries out the best uses of the slots, and puts what slots are over to other uses.

    A use cannot be carried out where the request that should write its state resumes below it. That
    is all that parts the plan from the upper bound; the slot then serves a lesser use. Slots that
    no chosen use needs hold states that another possible use would want, soonest first.

    Parameters
    ----------
    uses
        Those possible, by request.
    slots
        Of the budget.

    `missed` are the chosen uses that could not be carried out.
    """

    def __init__(self, uses: Sequence[Sequence[Use]], slots: int) -> None:
        self.missed: set[Use] = set()
        self._chosen = [dict[int, int]() for _ in uses]
        self._possible = [dict[int, int]() for _ in uses]
        for of_request in reversed(uses):
            for use in of_request:
                self._possible[use.since][use.depth] = use.to
        for use in best_uses(uses, slots).uses:
            later = self._chosen[use.since]
            later[use.depth] = max(use.to, later.get(use.depth, 0))
        self._kept_until: dict[State, int] = {}
        self._next_use: dict[State, int] = {}

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Write the states of the uses that begin with this request."""
        now = arrival.number
        chosen, possible = self._chosen[now], self._possible[now]
        for state in arrival.path:
            self._kept_until[state] = chosen.get(state.depth, self._kept_until[state])
            self._next_use[state] = possible.get(state.depth, self._next_use[state])
        depths = cache.depths()
        passed = {state.depth for state in arrival.path}
        for depth, until in chosen.items():
            if depth <= arrival.start and depth not in passed:
                self.missed.add(Use(now, until, depth))
            elif depth in depths and not cache.lives_at(depth):
                if cache.is_full:
                    cache.evict(self._least_wanted(cache, now))
                self._write(cache, depth, until, until)
        for depth, to in sorted(possible.items(), key=lambda use: use[1]):
            if depth in depths and not cache.lives_at(depth) and self._finds_slot(cache, now, to):
                self._write(cache, depth, 0, to)

    def forget(self, state: State) -> None:
        """Take note that a state goes."""
        del self._kept_until[state], self._next_use[state]

    def _write(self, cache: Cache, depth: int, until: int, to: int) -> None:
        state = cache.write(depth)
        self._kept_until[state], self._next_use[state] = until, to

    def _finds_slot(self, cache: Cache, now: int, to: int) -> bool:
        """Make room for a state used next by request `to`, unless all others are wanted more."""
        if not cache.is_full:
            return True
        if not len(cache.live):
            return False
        least = self._least_wanted(cache, now)
        if self._wanted(least, now) >= (False, -to):
            return False
        cache.evict(least)
        return True

    def _least_wanted(self, cache: Cache, now: int) -> State:
        return min(cache.live, key=lambda state: self._wanted(state, now))

    def _wanted(self, state: State, now: int) -> tuple[bool, int]:
        """Return whether a chosen use needs a state still, and how soon any use wants it."""
        to = self._next_use[state]
        return self._kept_until[state] > now, -(to if to > now else NEVER)
