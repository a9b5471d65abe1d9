"""The depths of one prompt where a state may pay: given ones, and what a forecast adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tree_placement.cost import SparseWeights
from tree_placement.overlap.model import OverlapModel
from tree_placement.path.placement import place, place_priced
from tree_placement.policy.columns import StateKind
from tree_placement.policy.visits import Extent, PolicySettings, Visit

SHORTEST_FORECAST = 8
"""Grid steps that a prompt computes at least for a forecast to be worth its time: on fewer, the
given depths leave no gap to fill."""

LEAST_SHARE = 1e-3
"""Share of a forecast's overlaps that a state is given at least."""

_SCOPES = 8


def given_depths(visit: Visit, extent: Extent, settings: PolicySettings) -> dict[int, StateKind]:
    """Return the depths that need no forecast, counted from `extent.start`.

    They are the end, the last grid depth; the tail; the junction, where the prompt left the tree;
    and where the end is the prompt's very length, the one before it, since the same prompt sent
    again resumes no deeper: one token is left to compute.

    Examples
    --------
    >>> visit = Visit("", path=(), overlap=400, earlier_length=900, turn=1)
    >>> extent = Extent(start=100, length=1000, full=False)
    >>> given = given_depths(visit, extent, PolicySettings())
    >>> {depth: kind.name for depth, kind in given.items()}
    {896: 'END', 256: 'JUNCTION', 704: 'TAIL'}
    """
    grid = settings.grid
    computed = extent.length - extent.start
    junction = min(visit.overlap - extent.start, computed)
    wanted = (
        (computed, StateKind.END),
        (junction, StateKind.JUNCTION),
        (computed - 1, StateKind.END),
        (computed - settings.tail, StateKind.TAIL),
    )
    depths: dict[int, StateKind] = {}
    for depth, kind in wanted:
        if depth >= grid and len(depths) < settings.states_per_path:
            depths.setdefault(depth // grid * grid, kind)
    return depths


class Room(NamedTuple):
    """How many states still fit, and what one has to save.

    `whole` fit on a prompt's path, `shared` of them down to where it left the tree, which are on
    the paths of earlier prompts too. `price` is in tokens for each overlap on the path.
    """

    whole: int
    shared: int
    price: float


def forecast_depths(
    visit: Visit,
    extent: Extent,
    given: Mapping[int, StateKind],
    room: Room,
    model: OverlapModel,
    settings: PolicySettings,
) -> dict[int, float]:
    """Return the depths that a forecast adds to the given ones, counted from `extent.start`, each
    with the share of overlaps that a state there is expected to serve.

    The exact single-path solution for the forecast of where later prompts leave this one: at the
    price of a slot (`place_priced`), and for the path's budget where that is less (`place`).
    O(n log n + s M) time for n depths of the forecast, s of them computed, and M states.
    """
    grid = settings.grid
    if room.whole < 1 or extent.length - extent.start < SHORTEST_FORECAST * grid:
        return {}
    forecast = model.forecast(scopes(visit), extent.length)
    beyond = forecast.depths > extent.start
    ahead = SparseWeights(forecast.depths[beyond] - extent.start, forecast.weights[beyond])
    fixed = list(given)
    total = float(np.sum(forecast.weights))
    placed = place_priced(ahead, room.price * total, grid=grid, fixed=fixed).depths.tolist()
    if len(placed) > room.whole:
        placed = place(ahead, room.whole, grid=grid, fixed=fixed).depths.tolist()
    junction = visit.overlap - extent.start
    if sum(depth <= junction for depth in placed) > room.shared:
        earlier = ahead.depths <= junction
        shared = place(
            SparseWeights(ahead.depths[earlier], ahead.weights[earlier]),
            room.shared,
            grid=grid,
            fixed=[depth for depth in fixed if depth <= junction],
        ).depths.tolist()
        deeper = place(
            ahead,
            room.whole - len(shared),
            grid=grid,
            fixed=[*fixed, *shared],
            minimum_depth=junction + 1,
        ).depths.tolist()
        placed = [*shared, *deeper]
    depths = np.array(sorted({*fixed, *placed}), dtype=np.int64)
    shares = _shares(ahead, depths) / total
    served = dict(zip(depths.tolist(), shares.tolist(), strict=True))
    return {depth: max(served[depth], LEAST_SHARE) for depth in placed if depth not in given}


def _shares(weights: SparseWeights, depths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weight that each depth serves: from itself to below the next deeper one."""
    serving = np.searchsorted(depths, weights.depths, side="right") - 1
    served = serving >= 0
    return np.bincount(serving[served], weights.weights[served], minlength=depths.size).astype(
        np.float64
    )


def scopes(visit: Visit) -> tuple[int, ...]:
    """Return the subtrees that hold a path, the narrowest first, in a bounded number."""
    branches = tuple(part.branch for part in visit.path)
    return branches if len(branches) <= _SCOPES else (*branches[: _SCOPES - 1], branches[-1])
