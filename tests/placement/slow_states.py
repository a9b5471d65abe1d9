"""Known states as a dictionary of positions: nothing is kept that can be computed."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tree_placement.policy import PathPart
from tree_placement.policy.columns import Columns
from tree_placement.policy.hazard import HazardModel

Position = tuple[int, int]
"""A branch, and a depth on it."""

FIRST_AGE = 16.0
FEWEST_USES = (0, 1, 2, 3, 4, 8, 32)
FIRST_RATE = 1 / 60
"""Uses a prompt of a kind of which nothing is known."""


class Unlearning(HazardModel):
    """Learns nothing, so that rates are known; they are of now, not of the last batch."""

    def observe(self, columns: Columns, now: float, used: int | None) -> None:
        self.scale(columns, np.flatnonzero(columns.known), now)


@dataclass
class SlowState:
    """What is known of a position; times count prompts."""

    share: float
    written: int
    passed: int
    uses: int = 0
    skips: int = 0


class Forest:
    """Branches of a tree: each begins somewhere on the one it hangs from, or at the root."""

    def __init__(self, draw: random.Random, branches: int, steps: int = 20) -> None:
        self._draw = draw
        self._steps = steps
        self._above: list[tuple[PathPart, ...]] = []
        for branch in range(branches):
            above = draw.randrange(-1, branch)
            self._above.append(self.path((above, self._depth_on(above))) if above >= 0 else ())

    def position(self) -> Position:
        branch = self._draw.randrange(len(self._above))
        return branch, self._depth_on(branch)

    def path(self, position: Position) -> tuple[PathPart, ...]:
        """The branches from a position to the root, each with where the path leaves it."""
        return (PathPart(*position), *self._above[position[0]])

    def is_above(self, upper: Position, lower: Position) -> bool:
        """Tell whether the path to `lower` leads through `upper`, or ends there."""
        branch, depth = upper
        return any(part.branch == branch and part.depth >= depth for part in self.path(lower))

    def _depth_on(self, branch: int) -> int:
        begin = self._above[branch][0].depth if self._above[branch] else 0
        return begin + 64 * self._draw.randrange(1, self._steps)


class SlowStates:
    """Known and live states of a forest; rates are those from before anything is learned."""

    def __init__(self, forest: Forest, missed: int) -> None:
        self.forest = forest
        self.known: dict[Position, SlowState] = {}
        self.live: dict[int, Position] = {}
        self.now = 0
        self._missed = missed

    def on_path(self, position: Position) -> list[Position]:
        """The known positions on a path, the deepest first."""
        on = [each for each in self.known if self.forest.is_above(each, position)]
        return sorted(on, key=lambda each: -each[1])

    def live_on_path(self, position: Position) -> list[int]:
        """The live states on a path, the deepest first."""
        on = [s for s, each in self.live.items() if self.forest.is_above(each, position)]
        return sorted(on, key=lambda state: -self.live[state][1])

    def above(self, position: Position) -> int | None:
        """The nearest live state strictly above a position."""
        on = [state for state in self.live_on_path(position) if self.live[state] != position]
        return on[0] if on else None

    def below(self, position: Position) -> list[int]:
        """The live states that would have a live state at `position` nearest above them."""
        above = self.above(position)
        return [
            state
            for state, each in self.live.items()
            if each != position
            and self.forest.is_above(position, each)
            and self.above(each) == above
        ]

    def rate(self, position: Position) -> float:
        known = self.known[position]
        prior = known.share ** (1 / (1 + known.uses))
        uses = max(fewest for fewest in FEWEST_USES if fewest <= known.uses)
        succession = (uses + 1) / (min(known.skips, 3) + 1)
        aging = prior * succession / (self.now - known.passed + FIRST_AGE)
        steady = (known.uses + 0.5) / (self.now - known.written + 0.5 / (known.share * FIRST_RATE))
        return float(min((aging + steady) / 2, 1.0))

    def rate_of_new(self, share: float) -> float:
        """The rate of a position that becomes known now."""
        return share * (1 / FIRST_AGE + FIRST_RATE) / 2

    def served(self) -> dict[int | None, list[Position]]:
        """The known positions at which prompts resume from each live state; None: from none."""
        served: dict[int | None, list[Position]] = {None: [], **{each: [] for each in self.live}}
        for position in self.known:
            served[next(iter(self.live_on_path(position)), None)].append(position)
        return served

    def gap(self, state: int) -> int:
        above = self.above(self.live[state])
        return self.live[state][1] - (self.live[above][1] if above is not None else 0)

    def values(self) -> dict[int, float]:
        served = self.served()
        return {each: self.gap(each) * sum(map(self.rate, served[each])) for each in self.live}

    def spill(self, position: Position) -> float:
        """What would fall to a new live state: from below it, and nearest to the one above."""
        fallen = self.served()[self.above(position)]
        return sum(
            self.rate(each)
            for each in fallen
            if each != position and self.forest.is_above(position, each)
        )

    def longest_path(self, state: int) -> list[int]:
        paths = [self.live_on_path(each) for each in self.live.values()]
        through = [path for path in paths if state in path]
        return min(through, key=lambda path: (-len(path), path[0]))

    def pass_by(self, position: Position) -> None:
        """One prompt takes a path: it uses the deepest known state, and passes all."""
        self.now += 1
        on = self.on_path(position)
        for each in on:
            self.known[each].passed = self.now
            self.known[each].skips += 1
        if on:
            self.known[on[0]].uses += 1
            self.known[on[0]].skips = 0

    def know(self, position: Position, share: float) -> None:
        """Know a position, and forget those known longest beyond the limit.

        A live one cannot be forgotten, and is as good as new when its turn has come.
        """
        if position in self.known:
            return
        self.known[position] = SlowState(share, self.now, self.now)
        while len(self.known) - len(self.live) > self._missed:
            oldest = next(iter(self.known))
            state = self.known.pop(oldest)
            if oldest in self.live.values():
                self.known[oldest] = state

    def cut(self, branch: int, depth: int) -> None:
        """The tree drops what it holds of a branch below a depth; what lives there stays."""
        for position in list(self.known):
            dropped = any(
                part.branch == branch and part.depth > depth for part in self.forest.path(position)
            )
            if dropped and position not in self.live.values():
                del self.known[position]
