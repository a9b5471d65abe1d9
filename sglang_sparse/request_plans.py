"""What the cache knows of each request between its match and its release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from tree_placement.policy import LossReason, Origin, PlannedState, RefusedState, Visit


class PendingCapture(NamedTuple):
    """A state that a forward pass writes, not yet in the tree.

    The pass computes from depth `start`; `slot` is a tensor of one element. `written` tells that
    the pass has run.
    """

    start: int
    planned: PlannedState
    slot: torch.Tensor
    written: bool = False

    @property
    def depth(self) -> int:
        """Depth in tokens from the root."""
        return self.planned.depth


@dataclass
class RequestPlan:
    """How a request met the tree, and what was planned along its path.

    `refused` are the planned states that got no slot.
    """

    visit: Visit
    observed: bool = False
    origin: Origin | None = None
    states: tuple[PlannedState, ...] | None = None
    pending: list[PendingCapture] = field(default_factory=list)
    refused: list[RefusedState] = field(default_factory=list)

    def states_of_pass(self, start: int, end: int, grid: int) -> list[PlannedState]:
        """Return the planned states of a pass, their depths on its own grid.

        SGLang keeps the state at the last grid depth of each pass by itself.
        """
        last = start + (end - start) // grid * grid
        of_pass: list[PlannedState] = []
        shallowest = start
        for state in self.states or ():
            depth = start + (state.depth - start) // grid * grid
            if shallowest < depth < last:
                of_pass.append(state._replace(depth=depth))
                shallowest = depth
        return of_pass

    def planned_at(self, depth: int, grid: int) -> PlannedState | None:
        """Return the planned state whose grid step holds `depth`, there; None if none does."""
        for state in self.states or ():
            if state.depth <= depth < state.depth + grid:
                return state._replace(depth=depth)
        return None

    def take_pending(self, published: int) -> list[PendingCapture]:
        """Take out the pending captures down to depth `published`."""
        ready = [capture for capture in self.pending if capture.depth <= published]
        self.pending = [capture for capture in self.pending if capture.depth > published]
        return ready

    def take_refused(self, published: int) -> list[RefusedState]:
        """Take out the refused states down to depth `published`."""
        refused = [state for state in self.refused if state.depth <= published]
        self.refused = [state for state in self.refused if state.depth > published]
        return refused


class RequestPlans:
    """The plans of all requests that still exist."""

    def __init__(self) -> None:
        self._plans: WeakKeyDictionary[Any, RequestPlan] = WeakKeyDictionary()

    def __getitem__(self, req: Any) -> RequestPlan:
        return self._plans[req]

    def get(self, req: Any) -> RequestPlan | None:
        """Return a request's plan, None if it was never matched."""
        return self._plans.get(req)

    def remember(self, req: Any, visit: Visit) -> None:
        """Begin the plan of a request that was matched; one matched again was observed before."""
        plan = self._plans.get(req)
        self._plans[req] = (
            RequestPlan(visit)
            if plan is None
            else RequestPlan(visit, observed=plan.observed, origin=plan.origin)
        )

    def still_pending(self, req: Any, capture: PendingCapture) -> bool:
        """Tell whether a capture's slot is still its own, so that a pass may write it."""
        plan = self._plans.get(req)
        return plan is not None and any(pending is capture for pending in plan.pending)

    def mark_written(self, req: Any, capture: PendingCapture) -> None:
        """Note that a forward pass has written a capture: it may be published."""
        plan = self._plans.get(req)
        if plan is not None:
            plan.pending = [
                pending._replace(written=True) if pending is capture else pending
                for pending in plan.pending
            ]

    def revoke(self) -> PendingCapture | None:
        """Take out the pending capture used least; None where there is none."""
        candidates = [
            (capture.planned.rate, order, plan, capture)
            for order, plan in enumerate(self._plans.values())
            for capture in plan.pending
        ]
        if not candidates:
            return None
        _, _, plan, capture = min(candidates, key=lambda candidate: candidate[:2])
        plan.pending = [pending for pending in plan.pending if pending is not capture]
        plan.refused.append(RefusedState(capture.depth, LossReason.REVOKED))
        return capture

    def pending(self) -> Iterator[PendingCapture]:
        """Yield the pending captures of all requests."""
        for plan in self._plans.values():
            yield from plan.pending

    def drop_pending(self) -> None:
        """Forget the pending captures of all requests, whose slots are free already."""
        for plan in self._plans.values():
            plan.pending = []
