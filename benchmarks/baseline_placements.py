"""A SGLang plugin of the benchmarks: placements that do not learn, chosen by a prompt's namespace.

A request whose `extra_key` names one of them is planned by it instead of by the policy, with the
same states along a path: the one at the prompt's end included.
"""

from __future__ import annotations

from collections.abc import Callable

from tree_placement import balanced
from tree_placement.policy import Extent, Origin, PlannedState, SparsePolicy, Visit
from tree_placement.policy.branches import path_to

Placement = Callable[[Visit, Extent, int, int], set[int]]


def _balanced(visit: Visit, extent: Extent, count: int, grid: int) -> set[int]:
    return set(balanced(extent.length - extent.start, count, grid=grid).tolist())


def _block(visit: Visit, extent: Extent, count: int, grid: int) -> set[int]:
    """The first multiples of 1,024 tokens."""
    return {1024 * (number + 1) for number in range(count)}


def _tail_and_junction(visit: Visit, extent: Extent, count: int, grid: int) -> set[int]:
    depths = {(extent.length - extent.start - 192) // grid * grid}
    if visit.overlap - extent.start >= grid:
        depths.add((visit.overlap - extent.start) // grid * grid)
    return depths


PLACEMENTS: dict[str, Placement] = {
    "balanced": _balanced,
    "block": _block,
    "tail+junction": _tail_and_junction,
}


def register() -> None:
    """Wrap the policy's planning."""
    plan = SparsePolicy.plan

    def plan_by_namespace(
        policy: SparsePolicy, visit: Visit, origin: Origin, extent: Extent
    ) -> tuple[PlannedState, ...]:
        for name, placement in PLACEMENTS.items():
            if visit.namespace.startswith(repr(name)):
                grid, length = policy.settings.grid, extent.length - extent.start
                live = policy._states.live_on_path(path_to(visit.path, visit.overlap))
                count = policy.settings.states_per_path - len(live) - 1
                depths = placement(visit, extent, max(count, 0), grid) | {length // grid * grid}
                return tuple(
                    policy.unplanned(visit.namespace, extent.start + depth)._replace(rate=1.0)
                    for depth in sorted(depths)
                    if 0 < depth <= length
                )
        return plan(policy, visit, origin, extent)

    SparsePolicy.plan = plan_by_namespace  # type: ignore[method-assign, assignment]
