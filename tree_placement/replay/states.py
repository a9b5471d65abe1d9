"""The live states on a tree, each with its neighbours above and below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tree_placement.replay.tree import Match, Segment, passes


@dataclass(eq=False, slots=True)
class State:
    """A live state, `depth` tokens from the root on `segment`, written by request `writer`.

    `used` is the last request that resumed from it, or wrote it, and `hits` how many resumed.
    `above` is the nearest live state above it, `below` those that have it as theirs.
    """

    id: int
    writer: int
    depth: int
    segment: Segment
    used: int
    hits: int = 0
    above: State | None = None
    below: dict[State, None] = field(default_factory=dict)

    @property
    def gap(self) -> int:
        """Tokens to the nearest live state above, or to the root."""
        return self.depth - (self.above.depth if self.above is not None else 0)


class LiveStates:
    """All live states of a tree, in order of their last use: the one unused longest comes first.

    Examples
    --------
    >>> segment = Segment(None, 0, 640, 1, 0, 640, ())
    >>> live = LiveStates()
    >>> upper, lower = live.add(0, 64, segment), live.add(0, 320, segment)
    >>> lower.gap
    256
    >>> live.remove(upper)
    >>> lower.gap
    320
    """

    def __init__(self) -> None:
        self._on: dict[Segment, dict[int, State]] = {}
        self._tops: dict[State, None] = {}
        self._by_use: dict[State, None] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._by_use)

    def __iter__(self) -> Iterator[State]:
        return iter(self._by_use)

    def on(self, segment: Segment) -> dict[int, State]:
        """Return the live states of a segment by depth, in no order; not to be changed."""
        return self._on.get(segment, {})

    def add(self, writer: int, depth: int, segment: Segment) -> State:
        """Add a state between the one above it and those below it.

        Time is linear in the states that have the same one above, and in the segments above them.
        """
        state = State(self._next, writer, depth, segment, used=writer)
        self._next += 1
        self._by_use[state] = None
        state.above = self._nearest_above(segment, depth)
        siblings = self._siblings(state)
        on_segment = self._on.setdefault(segment, {})
        if _may_have_below(segment, depth, on_segment):
            below = [each for each in siblings if passes(each.segment, each.depth, segment, depth)]
            for each in below:
                del siblings[each]
                each.above = state
                state.below[each] = None
        siblings[state] = None
        on_segment[depth] = state
        return state

    def use(self, state: State, request: int) -> None:
        """Note that a request resumes from a state."""
        state.hits += 1
        state.used = request
        del self._by_use[state]
        self._by_use[state] = None

    def path(self, match: Match, overlap: int) -> Iterator[State]:
        """Yield the states of a matched path down to `overlap`, the deepest first."""
        for segment, end in match.path():
            on_segment = self._on.get(segment)
            if on_segment:
                deepest = min(end, overlap)
                for depth in sorted(on_segment, reverse=True):
                    if depth <= deepest:
                        yield on_segment[depth]

    def remove(self, state: State) -> None:
        """Remove a state; those below it have the one above it now."""
        del self._by_use[state]
        siblings = self._siblings(state)
        del siblings[state]
        for each in state.below:
            each.above = state.above
            siblings[each] = None
        on_segment = self._on[state.segment]
        del on_segment[state.depth]
        if not on_segment:
            del self._on[state.segment]

    def _nearest_above(self, segment: Segment | None, depth: int) -> State | None:
        """Return the deepest live state above a depth of a segment; None without one."""
        while segment is not None:
            found = self._on.get(segment)
            if found:
                above = max((each for each in found if each < depth), default=0)
                if above:
                    return found[above]
            depth = segment.begin + 1
            segment = segment.parent
        return None

    def _siblings(self, state: State) -> dict[State, None]:
        return state.above.below if state.above is not None else self._tops


def _may_have_below(segment: Segment, depth: int, on_segment: Iterable[int]) -> bool:
    """Tell whether there is anything below a depth: most states are written where there is not."""
    hangs = bool(segment.joints) and segment.joints[-1] >= depth
    return hangs or any(each > depth for each in on_segment)
