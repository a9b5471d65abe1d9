"""What slots could save at most, for one who knows the whole trace.

A request can resume from a state only if that state was live since another passed its depth last:
in between nobody computes it. So a hit is one *use* of a slot, from that pass to the request, worth
the depth of its state. Uses of one state do not overlap, a request needs one at most, and at any
time at most as many run as there are slots. The best choice is a flow of slots through time of
greatest worth, which no policy exceeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tree_placement.replay.passes import Passes
from tree_placement.replay.simulator import Budget
from tree_placement.replay.trace import Trace
from tree_placement.replay.tree import BlockTree, Match


class Use(NamedTuple):
    """Request `to` resumes at `depth` from a state that lives since request `since` passed it."""

    since: int
    to: int
    depth: int


class BestUses(NamedTuple):
    """The uses worth most together, and the tokens they save."""

    tokens: int
    uses: tuple[Use, ...]


def possible_uses(trace: Trace, grid: int) -> tuple[tuple[Use, ...], ...]:
    """Return for each request the uses that it may choose one of: the deeper, the longer.

    A use that is both longer and no deeper than another is left out. Time is linear in the pieces
    of the requests' paths.

    Examples
    --------
    >>> from tree_placement.replay.trace import trace_of_prompts
    >>> trace = trace_of_prompts(["abcdef", "abcx", "abcdefg"], block=1)
    >>> possible_uses(trace, grid=1)[2]
    (Use(since=1, to=2, depth=3), Use(since=0, to=2, depth=6))
    """
    tree, passes = BlockTree(trace.block), Passes()
    uses = []
    for number, request in enumerate(trace.requests):
        match = tree.match(request)
        overlap = min(match.tokens, request.length - 1)
        uses.append(tuple(_uses_of(number, _depths_by_pass(match, overlap, grid, passes))))
        passes.touch(match, number)
        segment = tree.insert(request, match)
        if segment is not None:
            passes.add(segment, number)
    return tuple(uses)


def best_uses(uses: Sequence[Sequence[Use]], slots: int) -> BestUses:
    """Return the uses worth most that `slots` slots can serve, one a request at most.

    Notes
    -----
    A flow of `slots` units through the requests in order: a unit waits from each request to the
    next, or takes a use, by way of one node a request that only one unit may pass. Successive best
    paths, O(m log m) time each for m uses and requests; whole, as every capacity is.

    Examples
    --------
    >>> uses = [(), (), (Use(0, 2, 9),), (Use(1, 3, 5), Use(0, 3, 6)), (Use(3, 4, 7),)]
    >>> best_uses(uses, 1)
    BestUses(tokens=16, uses=(Use(since=0, to=2, depth=9), Use(since=3, to=4, depth=7)))
    """
    from tree_placement.replay._flow import best_flow

    listed = [use for of_request in uses for use in of_request]
    if not listed or not slots:
        return BestUses(0, ())
    taken = best_flow(len(uses), listed, slots)
    chosen = tuple(use for use, is_taken in zip(listed, taken.tolist(), strict=True) if is_taken)
    return BestUses(sum(use.depth for use in chosen), chosen)


def upper_bound(trace: Trace, budget: Budget) -> int:
    """Return a number of tokens that no policy exceeds on this trace and budget.

    KV is held to stay, which only helps. With a budget of KV the bound holds and may be loose.

    Examples
    --------
    >>> from tree_placement.replay.trace import trace_of_prompts
    >>> trace = trace_of_prompts([range(640), range(900, 1540), range(700), range(900, 1600)], 16)
    >>> upper_bound(trace, Budget(slots=1)), upper_bound(trace, Budget(slots=2))
    (640, 1280)
    """
    uses = possible_uses(trace, budget.grid)
    if budget.slots is None:
        return sum(of_request[-1].depth for of_request in uses if of_request)
    return best_uses(uses, budget.slots).tokens


def _depths_by_pass(match: Match, overlap: int, grid: int, passes: Passes) -> dict[int, int]:
    """Return the deepest grid depth of a path down to `overlap` that each request passed last."""
    depths: dict[int, int] = {}
    for segment, end in match.path():
        for piece in passes.pieces(segment):
            depth = min(piece.end, end, overlap) // grid * grid
            if depth > segment.begin:
                depths[piece.request] = max(depths.get(piece.request, 0), depth)
            if piece.end >= end:
                break
    return depths


def _uses_of(number: int, depths: dict[int, int]) -> Iterator[Use]:
    deepest = 0
    for request in sorted(depths, reverse=True):
        if depths[request] > deepest:
            deepest = depths[request]
            yield Use(request, number, deepest)
