"""The tree of cached KV: what each prompt added to it, as one segment.

A radix tree would split its nodes where prompts leave. Here a segment is never split: others hang
from it at the depths where their prompts left. A path is then a few segments, each with the depth
down to which it is taken, and an insertion is linear in what it adds.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tree_placement.replay.trace import Request


@dataclass(eq=False, slots=True)
class Segment:
    """What one prompt added: its tokens from depth `begin` to `end`.

    `branch` is one number for prompts that each went on from the very end of the one before;
    `prompt_length` is the length of the prompt that added the segment, and `level` the number of
    segments above it.
    `joints` are the depths where others hang from it, rising, one for each; `is_cut` tells that
    more followed its end, which is gone.
    """

    parent: Segment | None
    begin: int
    end: int
    branch: int
    level: int
    prompt_length: int
    blocks: Sequence[int]
    joints: list[int] = field(default_factory=list)
    is_cut: bool = False


class Match(NamedTuple):
    """How far the tree holds a prompt: `tokens` in full blocks, and its last segment there."""

    tokens: int
    segment: Segment | None

    def path(self) -> Iterator[tuple[Segment, int]]:
        """Yield the segments up to the root, each with the depth down to which it is taken."""
        segment, depth = self.segment, self.tokens
        while segment is not None:
            yield segment, depth
            depth = segment.begin
            segment = segment.parent


class BlockTree:
    """The segments of all prompts, found by block id.

    Parameters
    ----------
    block
        Tokens of a block.

    Examples
    --------
    >>> tree = BlockTree(16)
    >>> first = tree.insert(Request(40, (0, 1)), tree.match(Request(40, (0, 1))))
    >>> tree.match(Request(70, (0, 1, 2, 3))).tokens
    32
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self._segments: dict[int, Segment] = {}
        self._branches = 0

    def match(self, request: Request) -> Match:
        """Return how far the tree holds a prompt. O(log n) look-ups for n blocks."""
        segments, blocks = self._segments, request.blocks
        count = bisect_right(blocks, 0, key=lambda block: block not in segments)
        return Match(count * self.block, segments[blocks[count - 1]] if count else None)

    def insert(self, request: Request, match: Match) -> Segment | None:
        """Add what `match` did not find of a prompt; None where that is nothing."""
        if match.tokens == request.length:
            return None
        parent = match.segment
        segment = Segment(
            parent=parent,
            begin=match.tokens,
            end=request.length,
            branch=self._branch(match),
            level=parent.level + 1 if parent is not None else 0,
            prompt_length=request.length,
            blocks=request.blocks,
        )
        if parent is not None:
            insort(parent.joints, match.tokens)
        for block in request.blocks[match.tokens // self.block :]:
            self._segments[block] = segment
        return segment

    def cut(self, segment: Segment, depth: int) -> None:
        """Take away what a segment has below `depth`, where nothing hangs from it."""
        for block in segment.blocks[depth // self.block : segment.end // self.block]:
            del self._segments[block]
        segment.end = depth
        segment.is_cut = True
        parent = segment.parent
        if depth == segment.begin and parent is not None:
            parent.joints.remove(depth)
            parent.is_cut = parent.is_cut or depth == parent.end

    def _branch(self, match: Match) -> int:
        """Return the branch of what is added: the one it goes on from, else a new one."""
        parent = match.segment
        if parent is not None:
            last = len(parent.blocks) * self.block
            goes_on = match.tokens == last and not parent.is_cut
            if goes_on and (not parent.joints or parent.joints[-1] < last):
                return parent.branch
        self._branches += 1
        return self._branches


def passes(segment: Segment | None, depth: int, through: Segment, at: int) -> bool:
    """Tell whether the path to `depth` on `segment` leads through depth `at` of `through`."""
    while segment is not None and segment.level > through.level:
        depth = segment.begin
        segment = segment.parent
    return segment is through and depth >= at
