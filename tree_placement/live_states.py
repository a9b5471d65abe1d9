"""The live states of a tree, each with the nearest one above it, and what each is worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", float, NDArray[np.float64])


def saving(gap: Number, share: Number, age: Number) -> Number:
    """Return what a state is expected to save per unit of slot-time, in tokens per prompt.

    `gap` is the distance in tokens to the nearest live state above, which would serve instead;
    `share` the part of later prompts on its path that it serves; `age` the number of prompts
    since the last one that passed it, so that 1 / age estimates how often its path is visited.
    """
    return gap * (share + SHARE_FLOOR) / age


SHARE_FLOOR = 0.05
"""Share of a state that no forecast spoke for: a junction that was seen once, an end."""


class LiveStates:
    """Live states by id, in arrays, so that a scan over all of them is one vector operation.

    Every update is O(1) or linear in the states that change their nearest one above.
    """

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._above: dict[int, int | None] = {}
        self._below: dict[int | None, set[int]] = {None: set()}
        self._free_rows: list[int] = []
        self._state = np.zeros(0, dtype=np.int64)
        self._depth = np.zeros(0, dtype=np.float64)
        self._gap = np.zeros(0, dtype=np.float64)
        self._share = np.zeros(0, dtype=np.float64)
        self._last = np.zeros(0, dtype=np.float64)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, state: int) -> bool:
        return state in self._rows

    def add(
        self,
        state: int,
        depth: int,
        share: float,
        above: int | None,
        below: Iterable[int],
        now: int,
    ) -> None:
        """Add a state, last passed `now`, between the one `above` it and those `below` it."""
        row = self._new_row()
        self._rows[state] = row
        self._below[state] = set()
        self._state[row], self._depth[row] = state, depth
        self._share[row], self._last[row] = share, now
        self._link(state, above)
        for deeper in below:
            self._below[self._above[deeper]].discard(deeper)
            self._link(deeper, state)

    def remove(self, state: int) -> None:
        """Remove a state and link those below it to the one above it."""
        above = self._above.pop(state)
        self._below[above].discard(state)
        for deeper in self._below.pop(state):
            self._link(deeper, above)
        row = self._rows.pop(state)
        self._state[row] = -1
        self._free_rows.append(row)

    def touch(self, state: int, now: int) -> None:
        """Note that a prompt passed the state."""
        self._last[self._rows[state]] = now

    def order(self, now: int) -> Iterator[int]:
        """Return the states, the least valuable first; of equal ones the oldest id first."""
        live = np.flatnonzero(self._state >= 0)
        ranked = live[np.lexsort((self._state[live], self._values(now)[live]))]
        return iter(self._state[ranked].tolist())

    def least(self, now: int) -> float:
        """Return the least value of a live state, infinity where there is none."""
        values = self._values(now)[self._state >= 0]
        return float(values.min()) if values.size else float("inf")

    def _values(self, now: int) -> NDArray[np.float64]:
        return saving(self._gap, self._share, np.maximum(now - self._last + 1.0, 1.0))

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
            for name in ("_depth", "_gap", "_share", "_last"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate((column, np.zeros(grown - size))))
            self._free_rows = list(range(grown - 1, size - 1, -1))
        return self._free_rows.pop()
