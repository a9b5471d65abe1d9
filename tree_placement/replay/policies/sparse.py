"""The policy of the live cache, taken through a replay as the cache takes it through requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tree_placement.policy import (
    Extent,
    Origin,
    PathPart,
    PlannedState,
    SparsePolicy,
    Visit,
    next_to_admit,
)
from tree_placement.replay.simulator import Arrival, Cache, ReplayPolicy
from tree_placement.replay.states import State
from tree_placement.replay.tree import Segment


class SparseReplay(ReplayPolicy):
    """Runs a `SparsePolicy`: observe, plan, take slots, publish what was written, bound the path.

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
        self.policy = policy
        self.live: dict[int, State] = {}

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Write the planned states that are worth their slots."""
        visit, origin = self.observe(arrival)
        if cache.budget.slots == 0:
            return
        extent = Extent(arrival.start, arrival.length, cache.is_full)
        planned = self.policy.plan(visit, origin, extent)
        path = parts_of(cache.segments)
        self.policy.publish(path, planned)
        waiting = [each for each in planned if not cache.lives_at(each.depth)]
        taken: list[int] = []
        while waiting:
            best, above = next_to_admit(waiting, taken, arrival.start)
            if not self._take_slot(cache, best, above):
                break
            waiting.remove(best)
            taken.append(best.depth)
            self.bound_path(cache, self.write(cache, path, best), lambda _: True)

    def observe(self, arrival: Arrival) -> tuple[Visit, Origin]:
        """Tell the policy of a prompt; return how it met the tree, and what a plan wants of it."""
        segment = arrival.match.segment
        visit = Visit(
            namespace="",
            path=parts_of(arrival.match.path()),
            overlap=arrival.overlap,
            earlier_length=arrival.earlier_length,
            turn=segment.level + 1 if segment is not None else 0,
        )
        return visit, self.policy.observe(visit, arrival.length)

    def write(self, cache: Cache, path: Sequence[PathPart], planned: PlannedState) -> State:
        """Write a state, and tell the policy."""
        state = cache.write(planned.depth)
        self.live[state.id] = state
        self.policy.add(state.id, path, planned)
        return state

    def forget(self, state: State) -> None:
        """Take note that a state goes."""
        del self.live[state.id]
        self.policy.remove(state.id)

    def cut(self, path: Iterable[tuple[Segment, int]]) -> None:
        """Forget what is known of tokens that the tree dropped."""
        self.policy.cut(parts_of(path))

    def _take_slot(self, cache: Cache, planned: PlannedState, above: int) -> bool:
        """Give up the least valuable state where no slot is free."""
        if not cache.is_full:
            return True
        displaced = next(self.policy.eviction_order(), None)
        if displaced is None or not self.policy.is_worth_a_slot(planned, above, displaced):
            return False
        cache.evict(self.live[displaced])
        return True

    def bound_path(self, cache: Cache, state: State, may_go: Callable[[int], bool]) -> None:
        """Give up states on the paths through a new one until none has more than its budget."""
        while state.id in self.live:
            surplus = self.policy.surplus(state.id, may_go)
            if surplus is None:
                return
            cache.evict(self.live[surplus])


def parts_of(path: Iterable[tuple[Segment, int]]) -> tuple[PathPart, ...]:
    """Return a path's branches, each with the depth down to which the path takes it."""
    parts: dict[int, int] = {}
    for segment, depth in path:
        parts.setdefault(segment.branch, depth)
    return tuple(PathPart(branch, depth) for branch, depth in parts.items())
