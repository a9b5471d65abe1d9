"""Which states to keep, and where: one object that a live cache and a replay both run.

Data goes one way. The caller reports each prompt once (`observe`), asks where along it to keep
states (`plan`), reports the states that came to exist (`add`) and that went (`remove`), and asks
which to give up (`eviction_order`). Depths are in tokens, time is counted in prompts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tree_placement.cost import SparseWeights
from tree_placement.overlap.model import OverlapModel
from tree_placement.path.placement import place
from tree_placement.policy.live_states import LiveStates, saving


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """What does not change while a policy runs.

    Parameters
    ----------
    states_per_path
        States along one path at most, the one at its end included.
    grid
        Distance in tokens between depths where a state can exist, counted from where a prompt's
        computation starts.
    tail
        Distance in tokens of the tail from the prompt's end.
    decay, bin, subtrees
        As for `OverlapModel`.
    namespaces
        Namespaces with statistics of their own; beyond them the one unused longest is forgotten.
    """

    states_per_path: int = 16
    grid: int = 64
    tail: int = 192
    decay: float = 0.99
    bin: int = 64
    subtrees: int = 4096
    namespaces: int = 256


class Visit(NamedTuple):
    """How one prompt met the tree.

    `branches` are the ids of the branches on its matched path, the narrowest first; a branch is
    what one prompt added to the tree. `overlap` is the depth to which the tree holds its tokens,
    and `earlier_length` the length of the prompt that added the last of them (0 without overlap).
    """

    namespace: str
    branches: tuple[int, ...]
    overlap: int
    earlier_length: int


class Extent(NamedTuple):
    """What of a prompt will be computed: from depth `start` to its `length`.

    `states` are the live states on its path down to `start`, the deepest first.
    """

    start: int
    length: int
    states: Sequence[int]


class PlannedState(NamedTuple):
    """A depth to keep a state at, and the share of later prompts that it is expected to serve."""

    depth: int
    share: float


class SparsePolicy:
    """Places states by the forecast of overlaps and gives up those expected to save least.

    Parameters
    ----------
    settings
        See `PolicySettings`.

    Notes
    -----
    Deterministic: the same calls in the same order give the same answers. Memory is bounded by
    the settings and the number of live states.
    """

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self._models: OrderedDict[str, OverlapModel] = OrderedDict()
        self._states = LiveStates()

    def warm_up(self) -> None:
        """Compile what `plan` runs, so that no prompt waits; seconds on a new machine."""
        place(np.ones(3), 1)

    def observe(self, visit: Visit, passed: Iterable[int]) -> None:
        """Count one prompt: where it left the tree, and the states it passed over or used.

        Call it once a prompt, before `plan`. `passed` are ids given to `add`, the deepest first,
        which is the one used. Time is linear in the branches and the states passed.
        """
        self._states.advance()
        for position, state in enumerate(passed):
            self._states.touch(state, served=position == 0)
        if visit.overlap > 0:
            self._model(visit.namespace).observe(
                visit.branches, visit.overlap, visit.earlier_length
            )

    def plan(self, visit: Visit, extent: Extent) -> tuple[PlannedState, ...]:
        """Return the depths in (`extent.start`, `extent.length`] to keep states at, rising.

        Some of them are given, as many as a path may have: the end, the last grid depth; the
        junction, where the prompt left the tree, if it lies a grid step or more beyond the start;
        and where the end is the prompt's very length the one before it, since the same prompt sent
        again resumes no deeper: one token is left to compute. They are planned on a path that has
        all its states as well, of which the least valuable then goes.

        What the path's budget leaves is placed by the exact single-path solution (`place`) for the
        forecast, in which the tail weighs as much as all other depths while nothing is known.
        Depths down to the junction lie on the paths of earlier prompts too, and get no more states
        than the fullest of these has room for. O(n log n + s M) time for n depths of the forecast,
        s of them beyond the start, and M states, and linear in the states below the start.
        """
        start = extent.start
        given = self._given(visit, extent)
        if not given:
            return ()
        weights = self._forecast(visit, extent)
        total = float(np.sum(weights.weights))
        beyond = weights.depths > start
        ahead = SparseWeights(weights.depths[beyond] - start, weights.weights[beyond])
        placed = self._placed(ahead, visit, extent, given)
        depths = np.array(sorted({*given, *placed}), dtype=np.int64)
        shares = _shares(ahead, depths) / total if total > 0.0 else np.zeros(depths.size)
        return tuple(
            PlannedState(start + int(depth), float(share))
            for depth, share in zip(depths, shares, strict=True)
        )

    def add(
        self, state: int, planned: PlannedState, above: int | None, below: Iterable[int]
    ) -> None:
        """Take up a live state: `above` is the nearest one on its path to the root.

        `below` are the states whose nearest one it becomes. O(1 + len(below)) time.
        """
        self._states.add(state, planned.depth, planned.share, above, below)

    def remove(self, state: int) -> None:
        """Forget a state; those that had it nearest have the one above it now."""
        self._states.remove(state)

    def clear_states(self) -> None:
        """Forget every state; the statistics stay."""
        self._states = LiveStates()

    def is_live(self, state: int) -> bool:
        """Tell whether `state` was added and not removed since."""
        return state in self._states

    def eviction_order(self) -> Iterator[int]:
        """Return the live states, the one expected to save least first. O(n log n) time."""
        return self._states.order()

    def surplus(self, state: int, may_go: Callable[[int], bool]) -> int | None:
        """Return a live state to give up because a path through `state` has too many.

        It is the one expected to save least, of equal ones the lowest id, among those that
        `may_go` lets go of the path with most states. The path's deepest state stays. None where
        no path has more than `PolicySettings.states_per_path`, or none of its states may go. Time
        is linear in the states above and below `state`.
        """
        if state not in self._states:
            return None
        path = self._states.longest_path(state)
        if len(path) <= self.settings.states_per_path:
            return None
        free = [each for each in path[1:] if may_go(each)]
        return min(free, key=lambda each: (self._states.value(each), each), default=None)

    def is_worth_a_slot(self, planned: PlannedState, above: int, displaced: int) -> bool:
        """Tell whether a planned state, `above` being the depth of the one above it, is expected
        to save more than the live state that it would displace. O(1) time."""
        expected = saving(float(planned.depth - above), planned.share, 0.0)
        return expected > self._states.value(displaced)

    def _given(self, visit: Visit, extent: Extent) -> list[int]:
        """Return the depths that need no forecast, from `extent.start`, the most useful first."""
        grid = self.settings.grid
        computed = extent.length - extent.start
        junction = min(visit.overlap - extent.start, computed)
        steps = [each // grid for each in (computed, junction, computed - 1) if each >= grid]
        return [step * grid for step in dict.fromkeys(steps)][: self.settings.states_per_path]

    def _placed(
        self, ahead: SparseWeights, visit: Visit, extent: Extent, given: Sequence[int]
    ) -> list[int]:
        """Return the depths that the forecast adds to the given ones, from `extent.start`."""
        grid, limit = self.settings.grid, self.settings.states_per_path
        budget = max(limit - len(extent.states) - len(given), 0)
        placed = place(ahead, budget, grid=grid, fixed=given).depths
        junction = visit.overlap - extent.start
        room = self._room(extent.states) - sum(depth <= junction for depth in given)
        if np.count_nonzero(placed <= junction) <= max(room, 0):
            return list(placed.tolist())
        of_earlier = ahead.depths <= junction
        shared = place(
            SparseWeights(ahead.depths[of_earlier], ahead.weights[of_earlier]),
            max(room, 0),
            grid=grid,
            fixed=[depth for depth in given if depth <= junction],
        ).depths.tolist()
        beyond = place(
            ahead,
            budget - len(shared),
            grid=grid,
            fixed=[*given, *shared],
            minimum_depth=junction + 1,
        ).depths.tolist()
        return [*shared, *beyond]

    def _room(self, states: Sequence[int]) -> int:
        """Return how many more states fit on every path through the first of `states`."""
        if not states:
            return self.settings.states_per_path
        return self.settings.states_per_path - len(self._states.longest_path(states[0]))

    def _model(self, namespace: str) -> OverlapModel:
        model = self._models.get(namespace)
        if model is None:
            settings = self.settings
            model = OverlapModel(settings.decay, settings.bin, settings.subtrees)
            self._models[namespace] = model
            if len(self._models) > settings.namespaces:
                self._models.popitem(last=False)
        self._models.move_to_end(namespace)
        return model

    def _forecast(self, visit: Visit, extent: Extent) -> SparseWeights:
        """Return the model's forecast, with the tail beside it for as long as little is known."""
        model = self._model(visit.namespace)
        forecast = model.forecast(visit.branches, extent.length)
        tail = extent.length - self.settings.tail
        if tail < 1:
            return forecast
        weight = 1.0 / (model.tree.effective_size + 2.0)
        return SparseWeights(
            *_with_point(forecast.depths, forecast.weights * (1.0 - weight), tail, weight)
        )


def _shares(weights: SparseWeights, depths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weight that each depth serves: from itself to below the next deeper one."""
    serving = np.searchsorted(depths, weights.depths, side="right") - 1
    served = serving >= 0
    shares = np.bincount(serving[served], weights.weights[served], minlength=depths.size)
    return shares.astype(np.float64)


def _with_point(
    depths: NDArray[np.int64], weights: NDArray[np.float64], depth: int, weight: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return sorted depths and weights with `weight` added at `depth`."""
    at = int(np.searchsorted(depths, depth))
    if at < depths.size and depths[at] == depth:
        weights = weights.copy()
        weights[at] += weight
        return depths, weights
    return np.insert(depths, at, depth), np.insert(weights, at, weight)
