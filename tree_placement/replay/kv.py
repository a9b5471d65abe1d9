"""A budget of KV: the leaves of the tree used least recently go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import heappop, heappush

from tree_placement._check import invalid
from tree_placement.replay.passes import Passes
from tree_placement.replay.trace import Request
from tree_placement.replay.tree import BlockTree, Match, Segment


class KvBudget:
    """How many tokens of KV a tree holds, and which of its leaves go when they are too many.

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
        self._request = 0
        self._passes = Passes()
        self._leaves: list[tuple[int, int, Segment]] = []
        self._splits: dict[Segment, list[int]] = {}
        self._order = 0

    def add(self, segment: Segment) -> None:
        """Count a segment that was inserted for the request that room was made for last."""
        self._tokens += segment.end - segment.begin
        self._passes.add(segment, self._request)
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
        self._request += 1
        self._split(match)
        for segment in self._passes.touch(match, self._request):
            self._push(segment)
        while self._tokens + request.length - match.tokens > self._room:
            passed, _, segment = heappop(self._leaves)
            begin = self._leaf_begin(segment, passed)
            if begin is not None:
                self._cut(segment, begin)
                yield segment, begin

    def _split(self, match: Match) -> None:
        """Note where a radix tree splits a node, which it never joins again."""
        if match.segment is None or match.tokens == match.segment.end:
            return
        splits = self._splits.setdefault(match.segment, [])
        at = bisect_left(splits, match.tokens)
        if splits[at : at + 1] != [match.tokens]:
            splits.insert(at, match.tokens)

    def _leaf_begin(self, segment: Segment, passed: int) -> int | None:
        """Return where the deepest node begins; None unless it is a leaf passed last then."""
        is_gone = segment.begin == segment.end
        if is_gone or self._passes.deepest(segment).request != passed:
            return None
        if segment.joints and segment.joints[-1] == segment.end:
            return None
        splits = self._splits.get(segment)
        return splits[-1] if splits else segment.begin

    def _cut(self, segment: Segment, begin: int) -> None:
        self._tokens -= segment.end - begin
        self._tree.cut(segment, begin)
        self._passes.cut(segment, begin)
        if begin > segment.begin:
            self._splits[segment].pop()
            self._push(segment)
        elif segment.parent is not None:
            self._push(segment.parent)

    def _push(self, segment: Segment) -> None:
        """Note when the deepest piece was passed; whether it is a leaf is seen when it comes up."""
        self._order += 1
        heappush(self._leaves, (self._passes.deepest(segment).request, self._order, segment))
