"""Where the prompts of a trace leave earlier ones."""

from __future__ import annotations

from typing import NamedTuple

from tree_placement.replay.trace import Trace
from tree_placement.replay.tree import BlockTree


class Overlap(NamedTuple):
    """How deep a request, by its number, matches an earlier prompt of `earlier_length` tokens."""

    request: int
    depth: int
    earlier_length: int

    @property
    def from_end(self) -> int:
        """Tokens from the overlap's depth to the earlier prompt's end."""
        return self.earlier_length - self.depth


def overlaps(trace: Trace) -> tuple[Overlap, ...]:
    """Return the overlap of each request that has any, KV held to stay.

    The earlier prompt is the one that added the last of the overlap. O(n) time for n blocks.

    Examples
    --------
    >>> from tree_placement.replay.trace import trace_of_prompts
    >>> found = overlaps(trace_of_prompts(["abcdef", "abcx", "uvw"], block=1))
    >>> found, found[0].from_end
    ((Overlap(request=1, depth=3, earlier_length=6),), 3)
    """
    tree = BlockTree(trace.block)
    found = []
    for number, request in enumerate(trace.requests):
        match = tree.match(request)
        if match.segment is not None:
            depth = min(match.tokens, request.length - 1)
            found.append(Overlap(number, depth, match.segment.prompt_length))
        tree.insert(request, match)
    return tuple(found)
