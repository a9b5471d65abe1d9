"""When each part of the tree was passed last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tree_placement.replay.tree import Match, Segment


class Piece(NamedTuple):
    """The part of a segment down to depth `end` that request `request` was the last to pass.

    It begins where the piece above it ends. The pieces are what the nodes of a radix tree would be.
    """

    end: int
    request: int


class Passes:
    """The pieces of every segment: the deeper, the longer ago they were passed.

    Examples
    --------
    >>> segment = Segment(None, 0, 64, 1, 0, 64, ())
    >>> passes = Passes()
    >>> passes.add(segment, 0)
    >>> passes.touch(Match(32, segment), 1)
    []
    >>> list(passes.pieces(segment))
    [Piece(end=32, request=1), Piece(end=64, request=0)]
    """

    def __init__(self) -> None:
        self._pieces: dict[Segment, list[Piece]] = {}

    def add(self, segment: Segment, request: int) -> None:
        """Note a new segment, which the request that adds it passes."""
        self._pieces[segment] = [Piece(segment.end, request)]

    def touch(self, match: Match, request: int) -> list[Segment]:
        """Note that a request passes a matched path; return the segments it passes to their end."""
        whole = []
        for segment, end in match.path():
            pieces = self._pieces[segment]
            while pieces and pieces[-1].end <= end:
                pieces.pop()
            pieces.append(Piece(end, request))
            if len(pieces) == 1:
                whole.append(segment)
        return whole

    def pieces(self, segment: Segment) -> Iterator[Piece]:
        """Return the pieces of a segment, the shallowest first."""
        return reversed(self._pieces[segment])

    def deepest(self, segment: Segment) -> Piece:
        """Return the deepest piece of a segment."""
        return self._pieces[segment][0]

    def cut(self, segment: Segment, depth: int) -> None:
        """Note that a segment has nothing below `depth` any more."""
        pieces = self._pieces[segment]
        deepest = pieces.pop(0)
        if depth == segment.begin:
            del self._pieces[segment]
        elif not pieces or pieces[0].end < depth:
            pieces.insert(0, Piece(depth, deepest.request))
