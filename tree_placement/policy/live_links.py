"""Which live state stands nearest above which, by the ids that the tree gives them."""

from __future__ import annotations

from collections.abc import Iterable


class LiveLinks:
    """Live states by id, each with its row, its depth, and the nearest live states around it.

    Examples
    --------
    >>> links = LiveLinks()
    >>> links.add(7, row=0, depth=640, above=None, below=())
    >>> links.add(9, row=1, depth=64, above=None, below=[7])
    >>> links.gap(7), links.longest_path(9)
    (576, [7, 9])
    """

    def __init__(self) -> None:
        self.row: dict[int, int] = {}
        self._depth: dict[int, int] = {}
        self._above: dict[int, int | None] = {}
        self._below: dict[int | None, set[int]] = {None: set()}

    def __len__(self) -> int:
        return len(self.row)

    def __contains__(self, state: int) -> bool:
        return state in self.row

    def above(self, state: int) -> int | None:
        """Return the nearest live state above."""
        return self._above[state]

    def below(self, state: int) -> set[int]:
        """Return the live states that have `state` nearest above them; not to be changed."""
        return self._below[state]

    def gap(self, state: int) -> int:
        """Return the tokens to the nearest live state above, or to the root."""
        above = self._above[state]
        return self._depth[state] - (self._depth[above] if above is not None else 0)

    def add(
        self, state: int, row: int, depth: int, above: int | None, below: Iterable[int]
    ) -> None:
        """Add a state between the one `above` it and those `below` it."""
        self.row[state], self._depth[state] = row, depth
        self._below[state] = set()
        self._link(state, above)
        for deeper in below:
            self._below[self._above[deeper]].discard(deeper)
            self._link(deeper, state)

    def remove(self, state: int) -> tuple[int, int | None, set[int]]:
        """Remove a state; those below it have the one above it now. Return its row, and both."""
        above = self._above.pop(state)
        self._below[above].discard(state)
        below = self._below.pop(state)
        for deeper in below:
            self._link(deeper, above)
        del self._depth[state]
        return self.row.pop(state), above, below

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

    def _link(self, state: int, above: int | None) -> None:
        self._above[state] = above
        self._below[above].add(state)
