"""The policy of the live cache, taken through a replay as the cache takes it through requests."""

from __future__ import annotations

from tree_placement.policy import Extent, PlannedState, SparsePolicy, Visit
from tree_placement.replay.simulator import Arrival, Cache
from tree_placement.replay.states import State

BRANCHES_PER_VISIT = 8


class SparseReplay:
    """Runs a `SparsePolicy`: observe, plan, take slots, add what was written, bound the path.

    Parameters
    ----------
    policy
        Sees what a live cache would tell it, and nothing more.

    Examples
    --------
    >>> from tree_placement.policy import PolicySettings
    >>> from tree_placement.replay import Budget, replay, trace_of_prompts
    >>> trace = trace_of_prompts([range(640), [*range(330), *range(900, 1300)]] * 2, 10)
    >>> policy = SparseReplay(SparsePolicy(PolicySettings()))
    >>> [served.hit > 0 for served in replay(trace, policy, Budget(slots=8))]
    [False, True, True, True]
    """

    def __init__(self, policy: SparsePolicy) -> None:
        self._policy = policy
        self._live: dict[int, State] = {}

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Write the planned states that are worth their slots, and the one at the end."""
        path = tuple(state.id for state in arrival.path)
        branches = arrival.branches
        if len(branches) > BRANCHES_PER_VISIT:
            branches = (*branches[: BRANCHES_PER_VISIT - 1], branches[-1])
        visit = Visit("", branches, arrival.overlap, arrival.earlier_length)
        self._policy.observe(visit, path)
        if not cache.budget.slots:
            return
        planned = self._policy.plan(visit, Extent(arrival.start, arrival.length, path))
        added = []
        above = arrival.start
        for each in planned:
            if cache.lives_at(each.depth):
                continue
            is_end = each is planned[-1]
            if self._take_slot(cache, each, above, is_end):
                state = cache.write(each.depth)
                added.append((state, each))
                above = each.depth
        for state, each in added:
            self._add(state, each)
        for state, _ in added:
            self._bound_path(cache, state)

    def forget(self, state: State) -> None:
        """Take note that a state goes."""
        del self._live[state.id]
        self._policy.remove(state.id)

    def _take_slot(self, cache: Cache, planned: PlannedState, above: int, is_end: bool) -> bool:
        """Give up the least valuable state where no slot is free; the end always gets one."""
        if not cache.is_full:
            return True
        displaced = next(self._policy.eviction_order(), None)
        if displaced is None:
            return False
        if not is_end and not self._policy.is_worth_a_slot(planned, above, displaced):
            return False
        cache.evict(self._live[displaced])
        return True

    def _add(self, state: State, planned: PlannedState) -> None:
        above = state.above
        self._live[state.id] = state
        self._policy.add(
            state.id,
            planned,
            above.id if above is not None else None,
            [below.id for below in state.below if below.id in self._live],
        )

    def _bound_path(self, cache: Cache, state: State) -> None:
        while state.id in self._live:
            surplus = self._policy.surplus(state.id, lambda _: True)
            if surplus is None:
                return
            cache.evict(self._live[surplus])
