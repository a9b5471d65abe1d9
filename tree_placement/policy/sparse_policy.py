"""Which states to keep, and where: one object that a live cache and a replay both run.

Data goes one way. The caller reports each prompt once (`observe`), asks where along it to keep
states (`plan`), reports what was published (`publish`), the states that came to exist (`add`) and
that went (`remove`), and asks which to give up (`eviction_order`). Depths are in tokens, time is
counted in prompts.

One value decides everything: the tokens that a state is expected to save the next prompt, which is
its gap to the nearest live state above times how often prompts would resume from it, or from states
below it that do not live. A state is planned where it may be worth something, takes a slot where it
is worth more than the state that it displaces, and goes when it is worth least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from tree_placement._check import check_count, invalid
from tree_placement.overlap._encoding import Decoder, Encoder
from tree_placement.path.placement import place
from tree_placement.policy.branches import PathPart, path_to
from tree_placement.policy.columns import StateKind
from tree_placement.policy.forecast import TreeForecast
from tree_placement.policy.hazard import (
    NO_STATE,
    UNKNOWN_ORIGIN,
    HazardModel,
    NewState,
    Origin,
    describe,
)
from tree_placement.policy.known_states import KnownStates
from tree_placement.policy.losses import LossReason, MissedState, RefusedState
from tree_placement.policy.namespaces import Namespace, Namespaces
from tree_placement.policy.placement import (
    SHORTEST_FORECAST,
    Room,
    forecast_depths,
    given_depths,
    scopes,
)
from tree_placement.policy.visits import Extent, PlannedState, PolicySettings, Visit

_KIND, _VERSION = b"TPSP", 2
_SAVED_SETTINGS = ("grid", "bin", "namespaces", "decay")


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
        self._hazard = HazardModel()
        self._namespaces = Namespaces(settings, self._hazard)
        self._states = KnownStates(self._hazard, settings.missed_states)

    def warm_up(self) -> None:
        """Compile what `plan` runs, so that no prompt waits; seconds on a new machine."""
        place(np.ones(3), 1)
        trial = SparsePolicy(self.settings)
        length = SHORTEST_FORECAST * self.settings.grid
        visit = Visit("", (PathPart(0, length),), 1, 1, 0)
        planned = trial.plan(visit, UNKNOWN_ORIGIN, Extent(0, length, full=True))
        trial.add(0, visit.path, planned[-1])
        for _ in range(16):
            trial.observe(visit, 2)
        next(trial.eviction_order())

    def observe(self, visit: Visit, length: int) -> Origin:
        """Count one prompt of `length` tokens: where it left the tree, and what it passed there.

        Call it once a prompt, before `plan`, which takes the result. Time is linear in the
        branches and the known states of its path, and each few prompts in all known states.

        Raises
        ------
        ValueError
            If a number is out of its range. Nothing has changed then.
        """
        length = check_count("length", length, 1, "pass the tokens of the prompt")
        visit = visit.checked()
        namespace = self._namespace(visit.namespace)
        self._states.advance()
        rows = self._states.on_path(path_to(visit.path, visit.overlap))
        return_time, served_by = None, NO_STATE
        if rows:
            served_by, return_time = self._states.kind_and_age(rows[0])
        self._states.pass_by(rows)
        if visit.overlap > 0:
            namespace.overlaps.observe(scopes(visit), visit.overlap, visit.earlier_length)
        return describe(
            turn=visit.turn,
            length=length,
            overlap=min(visit.overlap, length),
            return_time=return_time,
            served_by=served_by,
        )

    def plan(self, visit: Visit, origin: Origin, extent: Extent) -> tuple[PlannedState, ...]:
        """Return the depths in (`extent.start`, `extent.length`] to keep states at, rising.

        Given ones: the end, the tail, the junction (see `given_depths`), and depths of the matched
        path where states are known that do not live. They are planned on a path that has all its
        states as well, of which the least valuable then goes. What the path's budget leaves is
        placed by the forecast (see `forecast_depths`), whose depths down to the junction, which
        lie on the paths of earlier prompts too, are no more than the fullest of these has room for.
        """
        settings, start = self.settings, extent.start
        kinds = given_depths(visit, extent, settings)
        if not kinds:
            return ()
        self._add_missed(kinds, visit, extent)
        namespace = self._namespace(visit.namespace)
        forecast = NewState(StateKind.FORECAST, 1.0, origin, namespace.model, namespace.era)
        live = self._states.live_on_path(path_to(visit.path, visit.overlap))
        room = self._room(kinds, live, visit, extent, self._hazard.rate_of_new(forecast))
        shares = forecast_depths(visit, extent, kinds, room, namespace.overlaps, settings)
        kinds |= dict.fromkeys(shares, StateKind.FORECAST)
        planned = []
        for depth in sorted(kinds):
            new = forecast._replace(kind=kinds[depth], share=shares.get(depth, 1.0))
            rate = self._rate(visit, start + depth, new)
            planned.append(PlannedState(start + depth, rate, new))
        return tuple(planned)

    def publish(self, path: Sequence[PathPart], planned: Iterable[PlannedState]) -> None:
        """Watch planned states on a path that the tree now holds, whether they live or not."""
        for each in planned:
            if path and each.depth <= path[0].depth:
                self._states.know(path_to(path, each.depth), each.depth, self._of_now(each))

    def unplanned(self, namespace: str, depth: int) -> PlannedState:
        """Return the record of a state that the cache keeps though it was not planned."""
        of = self._namespace(namespace)
        new = NewState(StateKind.UNPLANNED, 1.0, UNKNOWN_ORIGIN, of.model, of.era)
        return PlannedState(depth, self._hazard.rate_of_new(new), new)

    def add(self, state: int, path: Sequence[PathPart], planned: PlannedState) -> None:
        """Take up a live state on a path, at the depth of `planned`.

        Time is linear in the known states of the path and below it.

        Raises
        ------
        ValueError
            If the path does not reach the state's depth, or a state with its id or at its depth
            lives already. Nothing has changed then.
        """
        if not path or path[0].depth < planned.depth:
            reach = path[0].depth if path else 0
            need = f"a path of at least {planned.depth} tokens"
            raise invalid("path of a new state", f"{reach} tokens", need, "pass its whole path")
        new = self._of_now(planned)
        self._states.add(state, path_to(path, planned.depth), planned.depth, new)

    def remove(self, state: int, reason: LossReason = LossReason.EVICTED) -> None:
        """Let a state live no longer; those that had it nearest have the one above it now.

        Raises ValueError if it does not live.
        """
        self._states.remove(state, reason)

    def lose(self, path: Sequence[PathPart], refused: RefusedState) -> None:
        """Note why a planned state on a published path got no slot.

        Raises ValueError if the path has no part.
        """
        _check_path(path)
        row = self._states.row_at(path_to(path, refused.depth), refused.depth)
        if row is not None:
            self._states.lose(row, refused.reason, refused.value, refused.price)

    def missed(self, path: Sequence[PathPart], start: int) -> list[MissedState]:
        """Return the positions on a path deeper than `start` where a state was planned and does
        not live, the deepest first. Nothing is changed."""
        rows = self._states.on_path(path)
        return self._states.missed(row for row in rows if self._states.depth(row) > start)

    def cut(self, path: Sequence[PathPart]) -> None:
        """Forget what is known deeper than the end of a path: the tree dropped the tokens there.

        What comes there later is other content, on a branch of its own. Time is linear in the
        known states that are forgotten. Raises ValueError if the path has no part.
        """
        _check_path(path)
        self._states.cut(*path[0])

    def clear_states(self) -> None:
        """Forget every state; what was learned stays."""
        self._states.clear()

    def statistics(self) -> bytes:
        """Return what was learned: how soon prompts resume, and where they leave the tree.

        No state is in it, nor what was learned of single subtrees: they are of one tree, and who
        reads this begins with an empty one.

        Returns
        -------
        bytes
            ``TPSP``, uint32 version (2), uint32 CRC-32 of the rest; then 8 bytes a number, int64
            or float64: int64 grid, bin and namespaces of the settings; float64 decay, and number
            of prompts; the namespaces (`Namespaces.write`). All of it little-endian. The same
            calls in the same order give the same bytes.

        Notes
        -----
        O(bytes) time: about 75 KB a namespace, and 80 bytes a bin.
        """
        encoder, settings = Encoder(), self.settings
        encoder.integers((settings.grid, settings.bin, settings.namespaces))
        encoder.reals((settings.decay, self._states.now))
        self._namespaces.write(encoder)
        return encoder.sealed(_KIND, _VERSION)

    def restore(self, data: bytes) -> None:
        """Take over what `statistics` returned, in place of everything known.

        Branches that are reported from here on are new ones, whatever their ids. This policy and
        the one that wrote, its states cleared, then learn the same bits from the same prompts.

        Raises
        ------
        ValueError
            If `data` is of another kind or version, of other settings, or damaged. The policy is
            then as it was.
        """
        decoder, settings = Decoder(data, _KIND, _VERSION), self.settings
        saved = (*decoder.integers(3).tolist(), decoder.reals(1).item())
        here = (settings.grid, settings.bin, settings.namespaces, settings.decay)
        for what, got, need in zip(_SAVED_SETTINGS, saved, here, strict=True):
            if got != need:
                fix = f"set that {what}, or begin without the file"
                raise invalid(f"{what} of the statistics", got, f"{need}, as set", fix)
        restored = SparsePolicy(settings)
        restored._states.now = decoder.reals(1).item()
        if not (restored._states.now >= 0.0 and restored._states.now.is_integer()):
            raise decoder.damaged(f"{restored._states.now} prompts")
        restored._namespaces.read(decoder)
        decoder.finish()
        self._hazard, self._namespaces = restored._hazard, restored._namespaces
        self._states = restored._states

    def is_live(self, state: int) -> bool:
        """Tell whether `state` was added and not removed since."""
        return state in self._states.links

    def forecast(self) -> TreeForecast:
        """Return what is expected of the next prompt, and the states kept for it.

        Of all namespaces together, which share the slots. Nothing is changed. O(n log n) time for
        n known states.
        """
        return self._states.forecast()

    def eviction_order(self) -> Iterator[int]:
        """Return the live states, the one expected to save least first.

        Time is linear in the known states for the first, O(n log n) for the rest.
        """
        return self._states.order()

    def surplus(self, state: int, may_go: Callable[[int], bool]) -> int | None:
        """Return a live state to give up because a path through `state` has too many.

        It is the one expected to save least, of equal ones the lowest id, among those that
        `may_go` lets go of the path with most states. The path's deepest state stays. None where
        no path has more than `PolicySettings.states_per_path`, or none of its states may go. Time
        is linear in the states above and below `state`, and where there are too many, in all known
        ones.
        """
        if state not in self._states.links:
            return None
        path = self._states.links.longest_path(state)
        if len(path) <= self.settings.states_per_path:
            return None
        free = [each for each in path[1:] if may_go(each)]
        return min(free, key=lambda each: (self._states.value(each), each), default=None)

    def value(self, state: int) -> float:
        """Return the tokens that a live state is expected to save the next prompt.

        Raises ValueError if it does not live.
        """
        return self._states.value(state)

    def is_worth_a_slot(self, planned: PlannedState, above: int, displaced: int) -> bool:
        """Tell whether a planned state, `above` being the depth of the one above it, is expected
        to save more than the live state that it would displace."""
        return planned.rate * (planned.depth - above) > self._states.value(displaced)

    def _add_missed(self, kinds: dict[int, StateKind], visit: Visit, extent: Extent) -> None:
        """Add the depths beyond the start where a state is known that does not live."""
        rows = self._states.on_path(path_to(visit.path, min(visit.overlap, extent.length)))
        missed = [row for row in rows if self._states.depth(row) > extent.start]
        missed.sort(key=lambda row: (-self._states.rate(row), row))
        for row in missed:
            step = (self._states.depth(row) - extent.start) // self.settings.grid
            if step > 0 and len(kinds) < self.settings.states_per_path:
                kinds.setdefault(step * self.settings.grid, self._states.kind_and_age(row)[0])

    def _room(
        self,
        kinds: Iterable[int],
        live: Sequence[int],
        visit: Visit,
        extent: Extent,
        overlap_rate: float,
    ) -> Room:
        """Return what still fits beside the `live` states of the path, the deepest first;
        `overlap_rate` is how often prompts will leave it."""
        limit = self.settings.states_per_path
        depths = list(kinds)
        on_fullest = len(self._states.links.longest_path(live[0])) if live else 0
        shared = sum(depth <= visit.overlap - extent.start for depth in depths)
        return Room(
            whole=max(limit - len(live) - len(depths), 0),
            shared=max(limit - on_fullest - shared, 0),
            price=self._states.least_value() / overlap_rate if extent.full else 0.0,
        )

    def _rate(self, visit: Visit, depth: int, new: NewState) -> float:
        """Return how often the next prompt is expected to resume from a state, once written."""
        if depth > visit.overlap or not visit.path:
            return self._hazard.rate_of_new(new)
        path = path_to(visit.path, depth)
        row = self._states.row_at(path, depth)
        own = self._hazard.rate_of_new(new) if row is None else self._states.rate(row)
        return own + self._states.spill(path, depth)

    def _of_now(self, planned: PlannedState) -> NewState:
        """Return what is known of a planned state, apart from a namespace that was forgotten."""
        model = self._namespaces.row_of(planned.new.model, planned.new.era)
        return planned.new if planned.new.model == model else planned.new._replace(model=model)

    def _namespace(self, name: str) -> Namespace:
        return self._namespaces.use(name, self._states.forget_model)


def _check_path(path: Sequence[PathPart]) -> None:
    if not path:
        raise invalid("path", "no part", "the branch where it ends", "pass the path from there up")
