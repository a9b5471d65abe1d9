"""The policy of the live cache, taken through a replay as the cache takes it through requests."""

from __future__ import annotations

from collections.abc import Iterable

from tree_placement.policy import (
    Extent,
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
    chunk
        Tokens of a forward pass of a server that publishes the state at the last grid depth of
        each, planned or not, as SGLang does. That is in the request's own slot, whose next owner
        takes the least valuable state's, which may be this one. None keeps planned states alone.

    Examples
    --------
    >>> from tree_placement.policy import PolicySettings
    >>> from tree_placement.replay import Budget, replay, trace_of_prompts
    >>> trace = trace_of_prompts([range(640), [*range(330), *range(900, 1300)]] * 2, 10)
    >>> policy = SparseReplay(SparsePolicy(PolicySettings()))
    >>> [served.hit > 0 for served in replay(trace, policy, Budget(slots=8))]
    [False, True, True, True]
    """

    def __init__(self, policy: SparsePolicy, chunk: int | None = None) -> None:
        self._policy = policy
        self._chunk = chunk
        self._live: dict[int, State] = {}

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Write the planned states, and the last one of each pass, that are worth their slots."""
        segment = arrival.match.segment
        visit = Visit(
            namespace="",
            path=_parts(arrival.match.path()),
            overlap=arrival.overlap,
            earlier_length=arrival.earlier_length,
            turn=segment.level + 1 if segment is not None else 0,
        )
        origin = self._policy.observe(visit, arrival.length)
        if cache.budget.slots == 0:
            return
        extent = Extent(arrival.start, arrival.length, cache.is_full)
        planned = self._policy.plan(visit, origin, extent)
        path = _parts(cache.segments)
        self._policy.publish(path, planned)
        waiting = [each for each in planned if not cache.lives_at(each.depth)]
        if self._chunk is None:
            self._admit(cache, path, waiting, arrival.start)
            return
        for start in range(arrival.start, arrival.length, self._chunk):
            computed = min(self._chunk, arrival.length - start)
            last = start + cache.floor(computed)
            of_pass = [each for each in waiting if start < each.depth < last]
            self._admit(cache, path, of_pass, start)
            self._keep(cache, path, planned, last)

    def forget(self, state: State) -> None:
        """Take note that a state goes."""
        del self._live[state.id]
        self._policy.remove(state.id)

    def cut(self, path: Iterable[tuple[Segment, int]]) -> None:
        """Forget what is known of tokens that the tree dropped."""
        self._policy.cut(_parts(path))

    def _admit(
        self, cache: Cache, path: tuple[PathPart, ...], waiting: list[PlannedState], start: int
    ) -> None:
        """Write states of a pass from `start` on, the best first, while they are worth a slot."""
        taken: list[int] = []
        while waiting:
            best, above = next_to_admit(waiting, taken, start)
            if not self._take_slot(cache, best, above):
                break
            waiting.remove(best)
            taken.append(best.depth)
            self._write(cache, path, best)

    def _keep(
        self,
        cache: Cache,
        path: tuple[PathPart, ...],
        planned: Iterable[PlannedState],
        depth: int,
    ) -> None:
        """Write the state at `depth` where a slot is free, or one is less valuable."""
        if depth not in cache.depths() or cache.lives_at(depth):
            return
        unplanned = self._policy.unplanned("", depth)
        state = next((each for each in planned if each.depth == depth), unplanned)
        if self._take_slot(cache, state, cache.above(depth)):
            self._write(cache, path, state)

    def _write(self, cache: Cache, path: tuple[PathPart, ...], planned: PlannedState) -> None:
        state = cache.write(planned.depth)
        self._live[state.id] = state
        self._policy.add(state.id, path, planned)
        self._bound_path(cache, state)

    def _take_slot(self, cache: Cache, planned: PlannedState, above: int) -> bool:
        """Give up the least valuable state where no slot is free."""
        if not cache.is_full:
            return True
        displaced = next(self._policy.eviction_order(), None)
        if displaced is None or not self._policy.is_worth_a_slot(planned, above, displaced):
            return False
        cache.evict(self._live[displaced])
        return True

    def _bound_path(self, cache: Cache, state: State) -> None:
        while state.id in self._live:
            surplus = self._policy.surplus(state.id, lambda _: True)
            if surplus is None:
                return
            cache.evict(self._live[surplus])


def _parts(path: Iterable[tuple[Segment, int]]) -> tuple[PathPart, ...]:
    """Return a path's branches, each with the depth down to which the path takes it."""
    parts: dict[int, int] = {}
    for segment, depth in path:
        parts.setdefault(segment.branch, depth)
    return tuple(PathPart(branch, depth) for branch, depth in parts.items())
