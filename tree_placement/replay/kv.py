"""A budget of KV: the leaves of the tree used least recently go."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from tree_placement._check import invalid
from tree_placement.replay.trace import Request
from tree_placement.replay.tree import BlockTree, Match, Segment


class KvBudget:
    """How many tokens of KV a tree holds, and which of its leaves go when they are too many.

    A segment has pieces, which the nodes of a radix tree would be: the deeper, the longer unused.

    Parameters
    ----------
    tree
        Is cut where leaves go.
    tokens
        Tokens at most.

    Examples
    --------
    >>> tree = BlockTree(16)
    >>> kv = KvBudget(tree, tokens=100)
    >>> earlier, later = Request(64, (0, 1, 2, 3)), Request(80, (0, 1, 4, 5, 6))
    >>> kv.add(tree.insert(earlier, Match(0, None)))
    >>> [depth for _, depth in kv.make_room(later, tree.match(later))]
    [32]
    """

    def __init__(self, tree: BlockTree, tokens: int) -> None:
        self._tree = tree
        self._room = tokens
        self._tokens = 0
        self._now = 0
        self._pieces: dict[Segment, list[tuple[int, int]]] = {}
        self._leaves: list[tuple[int, int, Segment]] = []
        self._order = 0

    def add(self, segment: Segment) -> None:
        """Count a segment that was inserted for the request that room was made for last."""
        self._tokens += segment.end - segment.begin
        self._pieces[segment] = [(segment.end, self._now)]
        self._push(segment)

    def make_room(self, request: Request, match: Match) -> Iterator[tuple[Segment, int]]:
        """Cut leaves until a prompt fits; yield each one's segment and the depth it keeps.

        What `match` found stays, as it is used now. O(log n) time a leaf for n segments, and
        linear in what goes.

        Raises
        ------
        ValueError
            If the prompt alone has no room.
        """
        if request.length > self._room:
            got = f"a prompt of {request.length} tokens"
            raise invalid("KV", got, f"at most {self._room}", "raise the budget of KV")
        self._touch(match)
        while self._tokens + request.length - match.tokens > self._room:
            used, _, segment = heappop(self._leaves)
            begin = self._leaf_begin(segment, used)
            if begin is not None:
                self._cut(segment, begin)
                yield segment, begin

    def _touch(self, match: Match) -> None:
        self._now += 1
        for segment, end in match.path():
            pieces = self._pieces[segment]
            while pieces and pieces[-1][0] <= end:
                pieces.pop()
            pieces.append((end, self._now))
            if len(pieces) == 1:
                self._push(segment)

    def _leaf_begin(self, segment: Segment, used: int) -> int | None:
        """Return where the last piece begins; None unless it is a leaf last used at `used`."""
        pieces = self._pieces.get(segment)
        if pieces is None or pieces[0][1] != used:
            return None
        begin = pieces[1][0] if len(pieces) > 1 else segment.begin
        if segment.joints:
            begin = max(begin, segment.joints[-1])
        return begin if begin < segment.end else None

    def _cut(self, segment: Segment, begin: int) -> None:
        pieces = self._pieces[segment]
        end, used = pieces.pop(0)
        self._tokens -= end - begin
        self._tree.cut(segment, begin)
        if not pieces or pieces[0][0] < begin:
            pieces.insert(0, (begin, used))
        if begin > segment.begin:
            self._push(segment)
            return
        del self._pieces[segment]
        if segment.parent is not None:
            self._push(segment.parent)

    def _push(self, segment: Segment) -> None:
        """Note when the last piece was used; whether it is a leaf is looked at when it comes up."""
        self._order += 1
        heappush(self._leaves, (self._pieces[segment][0][1], self._order, segment))
