"""The states that a policy knows of: those that live, and those that do not but may be missed.

A known state is a position where a prompt planned one. While it does not live, later prompts that
would have resumed from it are counted all the same; they fall to the nearest live state above it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from math import log

import numpy as np

from tree_placement._check import invalid
from tree_placement.policy.branches import Branch, Branches, PathPart
from tree_placement.policy.columns import StateKind, lengthened, no_columns
from tree_placement.policy.forecast import TreeForecast, tree_forecast
from tree_placement.policy.hazard import HazardModel, NewState, Origin
from tree_placement.policy.live_links import LiveLinks
from tree_placement.policy.losses import Loss, LossReason, MissedState

_NOWHERE = Branch(-1, None, 0)
_NEVER = -1.0


class KnownStates:
    """Known states in columns, so that a scan over all of them is one compiled loop.

    Parameters
    ----------
    hazard
        Tells how soon prompts resume from each.
    missed
        States known that do not live, at most; those written first are forgotten.

    Notes
    -----
    Memory is linear in `missed` and the live states. A row names a known state here, an id a live
    one in the tree.
    """

    def __init__(self, hazard: HazardModel, missed: int) -> None:
        self._hazard = hazard
        self._missed = missed
        self.now = 0.0
        self.clear()

    def clear(self) -> None:
        """Forget every state; what was learned of them stays."""
        self._columns = no_columns(len(Origin._fields))
        self._rates = np.zeros(0)
        self._served = np.zeros(0)
        self._rated_at = _NEVER
        self._unrated: dict[int, None] = {}
        self._branches = Branches()
        self._positions: list[tuple[Branch, int]] = []
        self._free: list[int] = []
        self._by_age: OrderedDict[int, None] = OrderedDict()
        self._state: dict[int, int] = {}
        self._losses: dict[int, Loss] = {}
        self.links = LiveLinks()

    def on_path(self, path: Sequence[PathPart]) -> list[int]:
        """Return the rows of the known states on a path, the deepest first."""
        rows: list[int] = []
        for part in path:
            branch = self._branches.get(part.branch)
            if branch is not None:
                rows += branch.rows_down_to(part.depth)
        return rows

    def live_on_path(self, path: Sequence[PathPart]) -> list[int]:
        """Return the ids of the live states on a path, the deepest first."""
        return [self._state[row] for row in self.on_path(path) if row in self._state]

    def kind_and_age(self, row: int) -> tuple[StateKind, float]:
        """Return a state's kind, and the prompts since one last passed it."""
        columns = self._columns
        return StateKind(columns.kind[row]), self.now - float(columns.passed[row])

    def depth(self, row: int) -> int:
        """Return a state's depth in tokens."""
        return self._positions[row][1]

    def rate(self, row: int) -> float:
        """Return how often the next prompt is expected to resume from a state, if it lives."""
        self._rate()
        return float(self._rates[row])

    def advance(self) -> None:
        """Let one prompt pass: every state ages."""
        self._scale_unrated()
        self.now += 1.0

    def pass_by(self, rows: Sequence[int]) -> None:
        """Note that the prompt passed states, and would have resumed from the first of them."""
        columns, now = self._columns, self.now
        self._rated_at = _NEVER
        self._hazard.observe(columns, now, rows[0] if rows else None)
        if not rows:
            return
        used = rows[0]
        columns.interval[used] = now - columns.used[used]
        columns.used[used] = now
        columns.uses[used] += 1
        columns.skips[rows] += 1
        columns.skips[used] = 0
        columns.passed[rows] = now
        self._hazard.scale(columns, np.array(rows), now)

    def row_at(self, path: Sequence[PathPart], depth: int) -> int | None:
        """Return the row of a position on the first branch of a path; None if it is unknown."""
        branch = self._branches.get(path[0].branch)
        return branch.row_at(depth) if branch is not None else None

    def know(self, path: Sequence[PathPart], depth: int, new: NewState) -> int:
        """Return the row of a position on the first branch of a path, begun if it is unknown.

        Time is linear in the known states of the path.
        """
        branch = self._branches.enter(path)
        row = branch.row_at(depth)
        if row is not None:
            return row
        row = self._new_row()
        columns, now = self._columns, self.now
        columns.written[row] = columns.passed[row] = columns.used[row] = now
        columns.interval[row] = columns.gap[row] = 0.0
        columns.prior[row] = log(new.share)
        columns.uses[row] = columns.skips[row] = 0
        columns.kind[row], columns.origin[row], columns.model[row] = new.kind, new.origin, new.model
        columns.nearest[row] = next((each for each in self.on_path(path) if columns.live[each]), -1)
        columns.known[row] = True
        self._positions[row] = branch, depth
        branch.put(depth, row)
        self._unrated[row] = None
        self._by_age[row] = None
        self._forget_oldest()
        return row

    def add(self, state: int, path: Sequence[PathPart], depth: int, new: NewState) -> None:
        """Let a state live, by its id, at a position on the first branch of a path; see `know` for
        a position that is unknown.

        Time is linear in the known states of the path, and those below that it will serve. Raises
        ValueError if the id is of a live state or another one lives there; nothing has changed
        then.
        """
        self._check_new(state, self.row_at(path, depth))
        row = self.know(path, depth, new)
        self._rate()
        self._losses.pop(row, None)
        columns = self._columns
        served_from, served, below = int(columns.nearest[row]), [row], []
        for deeper in self._positions[row][0].rows_below(depth, stop=self._state):
            if deeper in self._state:
                below.append(self._state[deeper])
            else:
                served.append(deeper)
        self._served[row] = 0.0
        self._serve(served, served_from, row)
        self.links.add(state, row, depth, self._state.get(served_from), below)
        self._state[row] = state
        columns.live[row], columns.state[row] = True, state
        for each in (state, *below):
            columns.gap[self.links.row[each]] = self.links.gap(each)

    def _serve(self, rows: Sequence[int], before: int, after: int) -> None:
        """Let some states have another live one nearest, by its row, or -1."""
        self._columns.nearest[rows] = after
        moved = sum(map(self._rates.item, rows))
        if before >= 0:
            self._served[before] = max(self._served[before] - moved, 0.0)
        if after >= 0:
            self._served[after] += moved

    def _check_new(self, state: int, row: int | None) -> None:
        if state in self.links:
            raise invalid("id of a new state", state, "one of no live state", "remove that first")
        if row in self._state:
            got = f"that of live state {self._state[row]}"
            raise invalid("position of a new state", got, "a free one", "remove that state first")

    def _check_live(self, what: str, state: int) -> None:
        if state not in self.links:
            raise invalid(what, state, "the id of a live state", "add it first")

    def remove(self, state: int, reason: LossReason = LossReason.EVICTED) -> None:
        """Let a state live no longer; what it served falls to the live one above it.

        What it was worth is noted. Time is linear in the known states. Raises ValueError if it
        does not live.
        """
        self._check_live("state to remove", state)
        self._rate()
        row, above, below = self.links.remove(state)
        value = self._value(row)
        del self._state[row]
        columns = self._columns
        self._losses[row] = Loss(reason, value, value, self.now)
        columns.live[row] = False
        served = np.flatnonzero(columns.nearest == row).tolist()
        self._serve(served, row, self.links.row[above] if above is not None else -1)
        for each in below:
            columns.gap[self.links.row[each]] = self.links.gap(each)

    def lose(self, row: int, reason: LossReason, value: float, price: float) -> None:
        """Note why a known state got no slot; nothing where it lives."""
        if not self._columns.live[row]:
            self._losses[row] = Loss(reason, value, price, self.now)

    def missed(self, rows: Iterable[int]) -> list[MissedState]:
        """Return those of some known states that do not live, and why."""
        return [
            MissedState(self.depth(row), self._losses.get(row), int(self._age_of_loss(row)))
            for row in rows
            if not self._columns.live[row]
        ]

    def _age_of_loss(self, row: int) -> float:
        loss = self._losses.get(row)
        return self.now - (loss.since if loss is not None else float(self._columns.written[row]))

    def spill(self, path: Sequence[PathPart], depth: int) -> float:
        """Return how often prompts are expected to fall to a new live state at a position.

        They are those of the states below it that do not live and have no live one in between.
        Time is linear in their number and that of the branches there.
        """
        branch = self._branches.get(path[0].branch)
        if branch is None:
            return 0.0
        self._rate()
        below = branch.rows_below(depth, stop=self._state)
        return float(self._rates[[row for row in below if row not in self._state]].sum())

    def value(self, state: int) -> float:
        """Return the tokens that a live state is expected to save the next prompt.

        Raises ValueError if it does not live.
        """
        self._check_live("state", state)
        self._rate()
        return self._value(self.links.row[state])

    def _value(self, row: int) -> float:
        return float(self._columns.gap[row] * self._served[row])

    def least_value(self) -> float:
        """Return what the live state expected to save least is expected to save; 0 without one."""
        self._rate()
        row = self._hazard.least(self._columns, self._served)
        return self._value(row) if row >= 0 else 0.0

    def forecast(self) -> TreeForecast:
        """Return the known states as a tree, see `tree_forecast`. Nothing is changed."""
        self._rate()
        return tree_forecast(self._branches, self._rates, self._state)

    def order(self) -> Iterator[int]:
        """Yield the live states, the one expected to save least first, of equal ones the lowest id.

        One scan for the first, which is often all that is asked for, O(n log n) for the rest. The
        order is that of the first call to `next`.
        """
        if not self.links.row:
            return
        self._rate()
        columns = self._columns
        live, states = columns.live.copy(), columns.state.copy()
        values = columns.gap * self._served
        first = int(self._hazard.least(columns, self._served))
        yield int(states[first])
        live[first] = False
        rows = np.flatnonzero(live)
        yield from states[rows[np.lexsort((states[rows], values[rows]))]].tolist()

    def cut(self, branch: int, depth: int) -> None:
        """Forget the states that do not live deeper than `depth` on a branch.

        Time is linear in their number.
        """
        on = self._branches.get(branch)
        if on is not None:
            for row in list(on.rows_cut_at(depth)):
                if not self._columns.live[row]:
                    self._forget(row)

    def forget_model(self, model: int) -> None:
        """Forget the states of a namespace that do not live; those that do are of none now."""
        of_model = self._columns.known & (self._columns.model == model)
        for row in np.flatnonzero(of_model & ~self._columns.live).tolist():
            self._forget(row)
        self._columns.model[of_model] = 0
        live = np.flatnonzero(of_model & self._columns.live)
        self._hazard.scale(self._columns, live, self.now)
        self._rated_at = _NEVER

    def _rate(self) -> None:
        """Bring the rates up to now, those that became known since the last time included."""
        self._scale_unrated()
        if self._rated_at != self.now:
            self._hazard.rates(self._columns, self.now, self._rates, self._served)
            self._rated_at = self.now

    def _scale_unrated(self) -> None:
        if self._unrated:
            self._hazard.scale(self._columns, np.array(list(self._unrated)), self.now)
            self._unrated.clear()
            self._rated_at = _NEVER

    def _new_row(self) -> int:
        if not self._free:
            size = len(self._positions)
            grown = max(2 * size, 256)
            self._columns = lengthened(self._columns, grown)
            self._rates = np.concatenate((self._rates, np.zeros(grown - size)))
            self._served = np.concatenate((self._served, np.zeros(grown - size)))
            self._positions += [(_NOWHERE, 0)] * (grown - size)
            self._free = list(range(grown - 1, size - 1, -1))
        return self._free.pop()

    def _forget_oldest(self) -> None:
        """Forget the state known longest of those that do not live, if there are too many."""
        while len(self._by_age) - len(self.links) > self._missed:
            row = next(iter(self._by_age))
            if self._columns.live[row]:
                self._by_age.move_to_end(row)
            else:
                self._forget(row)

    def _forget(self, row: int) -> None:
        self._unrated.pop(row, None)
        self._rated_at = _NEVER
        branch, depth = self._positions[row]
        self._positions[row] = (_NOWHERE, 0)
        self._columns.known[row] = False
        self._columns.nearest[row] = -1
        self._free.append(row)
        del self._by_age[row]
        self._losses.pop(row, None)
        branch.take(depth)
        self._branches.leave(branch)
