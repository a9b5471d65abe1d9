"""The live states of a tree, each with the nearest one above it, and what each is worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", float, NDArray[np.float64])

FIRST_AGE = 16.0
"""Prompts by which every age is longer, so that a state just written does not look in use."""

SHARE_FLOOR = 0.02
"""Share of a state that no forecast spoke for and no prompt has used."""

LEARNING_RATE = 0.3
"""Weight of the newest prompt that passed a state in that state's share."""


def saving(gap: Number, share: Number, age: Number) -> Number:
    """Return what a state is expected to save per unit of slot-time, in tokens per prompt.

    Parameters
    ----------
    gap
        Distance in tokens to the nearest live state above, which would serve instead.
    share
        Part of the prompts passing the state that resume from it.
    age
        Prompts since the last one that passed the state; 1 / age estimates how often one does.

    Examples
    --------
    >>> saving(640.0, 0.48, 4.0)
    16.0
    """
    return gap * (share + SHARE_FLOOR) / (age + FIRST_AGE)


class LiveStates:
    """Live states by id, in arrays, so that a scan over all of them is one vector operation.

    A state's share begins as forecast and follows what the prompts that pass it do. When a state
    goes its hits fall to the one above, and so does its share. Every update is O(1), or linear in
    the states that change their nearest one above.
    """

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._above: dict[int, int | None] = {}
        self._below: dict[int | None, set[int]] = {None: set()}
        self._free_rows: list[int] = []
        self._now = 0
        self._state = np.zeros(0, dtype=np.int64)
        self._depth = np.zeros(0)
        self._gap = np.zeros(0)
        self._share = np.zeros(0)
        self._last = np.zeros(0)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, state: int) -> bool:
        return state in self._rows

    def advance(self) -> None:
        """Let one prompt pass: every state ages."""
        self._now += 1

    def add(
        self, state: int, depth: int, share: float, above: int | None, below: Iterable[int]
    ) -> None:
        """Add a state between the one `above` it and those `below` it."""
        row = self._new_row()
        self._rows[state] = row
        self._below[state] = set()
        self._state[row], self._depth[row] = state, depth
        self._share[row], self._last[row] = share, self._now
        self._link(state, above)
        for deeper in below:
            self._below[self._above[deeper]].discard(deeper)
            self._link(deeper, state)

    def remove(self, state: int) -> None:
        """Remove a state; those below it, and its share, go to the one above it."""
        above = self._above.pop(state)
        self._below[above].discard(state)
        for deeper in self._below.pop(state):
            self._link(deeper, above)
        row = self._rows.pop(state)
        if above is not None:
            self._inherit(self._rows[above], row)
        self._state[row] = -1
        self._free_rows.append(row)

    def touch(self, state: int, served: bool) -> None:
        """Note that a prompt passed the state, and whether it resumed from it."""
        row = self._rows[state]
        self._last[row] = self._now
        self._share[row] += (served - self._share[row]) * LEARNING_RATE

    def order(self) -> Iterator[int]:
        """Yield the states, the least valuable first; of equal ones the lowest id first.

        O(n) time for the first, which is often all that is asked for, O(n log n) for the rest. The
        order is that of the first call to `next`.
        """
        live = np.flatnonzero(self._state >= 0)
        if not live.size:
            return
        values, states = self._values()[live], self._state[live]
        least = int(states[values == values.min()].min())
        yield least
        ranked = states[np.lexsort((states, values))]
        yield from (state for state in ranked.tolist() if state != least)

    def longest_path(self, state: int) -> list[int]:
        """Return the states of the path through `state` that has most, the deepest first.

        Of equally long ones the one whose deepest has the lowest id. Time is linear in the states
        above and below.
        """
        level = [state]
        while level:
            deepest = min(level)
            level = [deeper for each in level for deeper in self._below[each]]
        path = []
        current: int | None = deepest
        while current is not None:
            path.append(current)
            current = self._above[current]
        return path

    def value(self, state: int) -> float:
        """Return what a state is expected to save, as `saving` counts it. O(1) time."""
        row = self._rows[state]
        age = self._now - float(self._last[row])
        return saving(float(self._gap[row]), float(self._share[row]), age)

    def _values(self) -> NDArray[np.float64]:
        return saving(self._gap, self._share, self._now - self._last)

    def _inherit(self, heir: int, row: int) -> None:
        """Add a share to the heir's, scaled to the heir's passes, of which it has more."""
        ages = self._now - self._last[[heir, row]] + FIRST_AGE
        inherited = self._share[row] * min(ages[0] / ages[1], 1.0)
        self._share[heir] = min(self._share[heir] + inherited, 1.0)

    def _link(self, state: int, above: int | None) -> None:
        self._above[state] = above
        self._below[above].add(state)
        row = self._rows[state]
        top = self._depth[self._rows[above]] if above is not None else 0.0
        self._gap[row] = self._depth[row] - top

    def _new_row(self) -> int:
        if not self._free_rows:
            size = self._state.size
            grown = max(2 * size, 64)
            self._state = np.concatenate((self._state, np.full(grown - size, -1)))
            self._depth = _lengthened(self._depth, grown)
            self._gap = _lengthened(self._gap, grown)
            self._share = _lengthened(self._share, grown)
            self._last = _lengthened(self._last, grown)
            self._free_rows = list(range(grown - 1, size - 1, -1))
        return self._free_rows.pop()


def _lengthened(column: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    return np.concatenate((column, np.zeros(size - column.size)))
