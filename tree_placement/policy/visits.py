"""What passes between a cache and its policy: plain numbers and ids."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tree_placement._check import check_count
from tree_placement.overlap.model import OverlapModel
from tree_placement.policy.branches import PathPart
from tree_placement.policy.hazard import NewState


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
    missed_states
        States that do not live but are watched, so that it is known what they would have saved.

    Raises
    ------
    ValueError
        If a number is out of its range: below 0 for `tail`, below 1 for the others that count.
    """

    states_per_path: int = 16
    grid: int = 64
    tail: int = 192
    decay: float = 0.99
    bin: int = 64
    subtrees: int = 4096
    namespaces: int = 256
    missed_states: int = 4096

    def __post_init__(self) -> None:
        for name, minimum, fix in (
            ("states_per_path", 1, "pass the states a path may have"),
            ("grid", 1, "pass the tokens between depths of states"),
            ("tail", 0, "pass the tokens from a prompt's end"),
            ("bin", 1, "pass the width of a bin in tokens"),
            ("subtrees", 1, "pass the subtrees to remember"),
            ("namespaces", 1, "pass the namespaces to tell apart"),
            ("missed_states", 1, "pass the missed states to watch"),
        ):
            object.__setattr__(self, name, check_count(name, getattr(self, name), minimum, fix))
        OverlapModel(self.decay, self.bin, self.subtrees)


class Visit(NamedTuple):
    """How one prompt met the tree.

    `path` are the branches of its matched path, the narrowest first, each with the depth down to
    which the path takes it. `overlap` is how deep a state can serve the prompt: the depth to which
    the tree holds its tokens, short of the last one. `earlier_length` is the length of the prompt
    that added the deepest of them (0 without overlap).
    `turn` is the number of prompts that built the path, one on the other.
    """

    namespace: str
    path: tuple[PathPart, ...]
    overlap: int
    earlier_length: int
    turn: int

    def checked(self) -> Visit:
        """Return the visit with its numbers as ints; ValueError where one is out of its range."""
        overlap = check_count("overlap", self.overlap, 0, "pass the tokens that the tree held")
        least, fix = min(overlap, 1), "pass the length of the prompt that added the overlap"
        return self._replace(
            overlap=overlap,
            earlier_length=check_count("earlier_length", self.earlier_length, least, fix),
            turn=check_count("turn", self.turn, 0, "pass the prompts that built the path"),
        )


class Extent(NamedTuple):
    """What of a prompt will be computed: from depth `start` to its `length`.

    `full` tells that a new state has to displace a live one.
    """

    start: int
    length: int
    full: bool


class PlannedState(NamedTuple):
    """A depth to keep a state at, and how often the next prompt is expected to resume from it."""

    depth: int
    rate: float
    new: NewState


def next_to_admit(
    waiting: Sequence[PlannedState], taken: Sequence[int], start: int
) -> tuple[PlannedState, int]:
    """Return the planned state expected to save most, and the depth of the nearest one above it.

    Parameters
    ----------
    waiting
        Planned states without a slot, at least one.
    taken
        Depths of those of the same prompt that have one.
    start
        Depth from which the prompt is computed.

    Examples
    --------
    >>> from tree_placement.policy.columns import StateKind
    >>> from tree_placement.policy.hazard import UNKNOWN_ORIGIN
    >>> new = NewState(StateKind.END, 1.0, UNKNOWN_ORIGIN, model=1)
    >>> tail, end = PlannedState(704, 0.03, new), PlannedState(896, 0.03, new)
    >>> next_to_admit([tail, end], [], 0)[0].depth
    896
    >>> next_to_admit([tail], [end.depth], 0) == (tail, 0)
    True
    """

    depths = [start, *sorted(taken)]

    def above(state: PlannedState) -> int:
        return depths[bisect_left(depths, state.depth, lo=1) - 1]

    best = max(waiting, key=lambda state: state.rate * (state.depth - above(state)))
    return best, above(best)
