"""Positions in a prefix tree: a branch, and a depth on it.

A branch is what one prompt added to the tree, and what prompts added that went on from its very
end. It begins at a depth of the branch above it. A position that two prompts share has one name:
the branch on which it lies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple


class PathPart(NamedTuple):
    """A branch on a path, by its id, and the `depth` in tokens down to which the path takes it."""

    branch: int
    depth: int


def path_to(path: Sequence[PathPart], depth: int) -> tuple[PathPart, ...]:
    """Return a path down to `depth`, or as far as it reaches.

    Examples
    --------
    >>> path = (PathPart(7, 900), PathPart(3, 400))
    >>> [path_to(path, depth)[0] for depth in (1000, 401, 400)]
    [PathPart(branch=7, depth=900), PathPart(branch=7, depth=401), PathPart(branch=3, depth=400)]
    """
    at = 0
    while at + 1 < len(path) and path[at + 1].depth >= depth:
        at += 1
    if at == len(path) or path[at].depth <= depth:
        return tuple(path[at:])
    return (path[at]._replace(depth=depth), *path[at + 1 :])


class Branch:
    """A branch with the rows of the states that are known on it.

    `begin` is the depth of `parent` at which it begins, 0 at the root.
    """

    __slots__ = ("begin", "children", "depths", "id", "parent", "rows")

    def __init__(self, id: int, parent: Branch | None, begin: int) -> None:
        self.id = id
        self.parent = parent
        self.begin = begin
        self.children: dict[int, Branch] = {}
        self.depths: list[int] = []
        self.rows: list[int] = []

    def put(self, depth: int, row: int) -> None:
        """Add the row of a state at `depth`."""
        at = bisect_right(self.depths, depth)
        self.depths.insert(at, depth)
        self.rows.insert(at, row)

    def take(self, depth: int) -> None:
        """Remove the row at `depth`."""
        at = self.depths.index(depth)
        del self.depths[at], self.rows[at]

    def row_at(self, depth: int) -> int | None:
        """Return the row at `depth`, None where none is."""
        at = bisect_right(self.depths, depth) - 1
        return self.rows[at] if at >= 0 and self.depths[at] == depth else None

    def rows_down_to(self, depth: int) -> list[int]:
        """Return the rows down to `depth`, the deepest first."""
        return self.rows[: bisect_right(self.depths, depth)][::-1]

    def rows_below(self, depth: int, stop: Container[int] = ()) -> Iterator[int]:
        """Yield the rows deeper than `depth`, those on branches that begin there or deeper too, but
        none below a row of `stop`."""
        waiting: list[tuple[Branch, int]] = [(self, depth)]
        while waiting:
            branch, down_to = waiting.pop()
            stopped_at = None
            for at in range(bisect_right(branch.depths, down_to), len(branch.rows)):
                yield branch.rows[at]
                if branch.rows[at] in stop:
                    stopped_at = branch.depths[at]
                    break
            for child in branch.children.values():
                if down_to <= child.begin and (stopped_at is None or child.begin < stopped_at):
                    waiting.append((child, 0))

    def rows_cut_at(self, depth: int) -> Iterator[int]:
        """Yield the rows that are lost where the tree holds the branch down to `depth` only.

        Branches that begin right there are others' continuations, and stay.
        """
        yield from self.rows[bisect_right(self.depths, depth) :]
        for child in self.children.values():
            if child.begin > depth:
                yield from child.rows_below(0)


class Branches:
    """The branches that have known states, or lead to one that has."""

    def __init__(self) -> None:
        self._branches: dict[int, Branch] = {}

    def __len__(self) -> int:
        return len(self._branches)

    def __iter__(self) -> Iterator[Branch]:
        """Yield the branches, each after the one above it."""
        yield from self._branches.values()

    def get(self, branch: int) -> Branch | None:
        """Return a branch by its id, None where no state on or below it is known."""
        return self._branches.get(branch)

    def enter(self, path: Sequence[PathPart]) -> Branch:
        """Return the first branch of a path, the narrowest, with all above it."""
        missing = []
        for part in path:
            branch = self._branches.get(part.branch)
            if branch is not None:
                break
            missing.append(part)
        else:
            branch = None
        for part in reversed(missing):
            at = path.index(part)
            begin = path[at + 1].depth if at + 1 < len(path) else 0
            child = Branch(part.branch, branch, begin)
            if branch is not None:
                branch.children[child.id] = child
            self._branches[child.id] = branch = child
        assert branch is not None
        return branch

    def leave(self, branch: Branch) -> None:
        """Forget a branch, and those above it, where nothing known hangs from them any more."""
        current: Branch | None = branch
        while current is not None and not current.rows and not current.children:
            del self._branches[current.id]
            parent = current.parent
            if parent is not None:
                del parent.children[current.id]
            current = parent
