"""What the sparse cache keeps of prompts that a server takes through forward passes, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from stock_cache import HELD, forward_passes

from tree_placement.policy import Extent, PathPart, PlannedState, SparsePolicy, next_to_admit
from tree_placement.replay.policies.sparse import SparseReplay, parts_of
from tree_placement.replay.simulator import Arrival, Cache
from tree_placement.replay.states import State


class PassReplay(SparseReplay):
    """A `SparseReplay` that takes slots when a server does.

    SGLang publishes the state at the last grid depth of each pass, planned or not, for which the
    least valuable one goes at once; where a request ends with its last pass, that one's stands in
    its own slot, which the next request needs. What a pass captures has slots before it runs, and
    is published after it. A request's nearest state above what it computes is out of bounds.

    Parameters
    ----------
    policy
        See `SparseReplay`.
    slots
        Of the server's whole pool; those of a cache that is served with this are `HELD` less, and
        one more.
    chunk
        Tokens of a forward pass.
    decodes
        Whether more than one token is generated, so that a request runs on after its last pass.
    """

    def __init__(
        self, policy: SparsePolicy, slots: int, chunk: int, *, decodes: bool = False
    ) -> None:
        super().__init__(policy)
        self._decodes = decodes
        self._room = slots - HELD
        self._chunk = chunk
        self._in_use: State | None = None

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Take a prompt through its passes."""
        self._in_use = arrival.path[0] if arrival.path else None
        self._make_room(cache, coming=0)
        visit, origin = self.observe(arrival)
        extent = Extent(arrival.start, arrival.length, len(cache.live) >= self._room)
        planned = self.policy.plan(visit, origin, extent)
        path = parts_of(cache.segments)
        for start, _, last, goes_on in forward_passes(
            arrival.start, arrival.length, self._chunk, cache.budget.grid, decodes=self._decodes
        ):
            if last == start:
                continue
            captured = self._capture(cache, planned, start, last)
            if goes_on:
                captured = self._keep_one_slot(cache, captured)
            self._publish(cache, path, planned, [*(each.depth for each in captured), last])

    def _capture(
        self, cache: Cache, planned: Sequence[PlannedState], start: int, last: int
    ) -> list[PlannedState]:
        """Take slots for the planned states of a pass, the best first; return which got them."""
        waiting = [each for each in planned if start < each.depth < last]
        captured: list[PlannedState] = []
        while waiting:
            best, above = next_to_admit(waiting, [each.depth for each in captured], start)
            if len(cache.live) + len(captured) >= self._room:
                displaced = self._least_valuable()
                if displaced is None or not self.policy.is_worth_a_slot(best, above, displaced):
                    break
                cache.evict(self.live[displaced])
            waiting.remove(best)
            captured.append(best)
        return captured

    def _keep_one_slot(self, cache: Cache, captured: list[PlannedState]) -> list[PlannedState]:
        """Make room for the end of a pass; return the captures that need not be given up for it."""
        self._make_room(cache, len(captured) + 1)
        kept = list(captured)
        while kept and len(cache.live) + len(kept) + 1 > self._room:
            kept.remove(min(kept, key=lambda each: each.rate))
        return kept

    def _publish(
        self,
        cache: Cache,
        path: Sequence[PathPart],
        planned: Sequence[PlannedState],
        depths: Sequence[int],
    ) -> None:
        """Write the states of a pass, and tell the policy what was planned down to its end."""
        end = max(depths)
        known = {each.depth: each for each in planned}
        written: list[State] = []
        for depth in sorted(depths, reverse=True):
            if not cache.lives_at(depth):
                new = known.get(depth) or self.policy.unplanned("", depth)
                written.append(self.write(cache, path, new))
            if depth == end:
                self._in_use = cache.state_at(end)
                self.policy.publish(path, [each for each in planned if each.depth <= end])
        for state in written:
            self.bound_path(cache, state, self._may_go)

    def _make_room(self, cache: Cache, coming: int) -> None:
        """Give up states until there are slots for `coming` ones, or none may go."""
        while len(cache.live) + coming > self._room:
            displaced = self._least_valuable()
            if displaced is None:
                return
            cache.evict(self.live[displaced])

    def _least_valuable(self) -> int | None:
        return next(filter(self._may_go, self.policy.eviction_order()), None)

    def _may_go(self, state: int) -> bool:
        return self.live[state] is not self._in_use
