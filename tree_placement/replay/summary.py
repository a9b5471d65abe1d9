"""What a replay saved, in all and by the parts of its trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from tree_placement.replay.simulator import Served
from tree_placement.tree.shape import TreeShape


class Saving(NamedTuple):
    """Sums over requests, in tokens: `hit` was resumed, `dense` would be with a state at every
    grid depth, `gap` is the overlap that was recomputed, `overlaps` counts requests that had any.
    """

    requests: int = 0
    tokens: int = 0
    hit: int = 0
    dense: int = 0
    gap: int = 0
    overlaps: int = 0

    @property
    def share_of_tokens(self) -> float:
        """Part of the prompts' tokens that was not computed."""
        return self.hit / self.tokens if self.tokens else 0.0

    @property
    def share_of_dense_oracle(self) -> float:
        """Part of what a state at every grid depth would have saved; 1 where that is nothing."""
        return self.hit / self.dense if self.dense else 1.0

    @property
    def gap_per_hit(self) -> float:
        """Mean gap in tokens of the requests whose prompt overlaps an earlier one."""
        return self.gap / self.overlaps if self.overlaps else 0.0


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a replay saved.

    Parameters
    ----------
    whole
        Over all requests.
    states_written
        States that were live after the request that wrote them.
    states_live
        Mean number of live states after a request.
    by_shape
        The requests apart by the shape of their tree.
    by_depth
        Those that overlap an earlier prompt, apart by their overlap: each key is the power of two
        at or below it, in tokens, rising.
    """

    whole: Saving
    states_written: int
    states_live: float
    by_shape: dict[TreeShape, Saving]
    by_depth: dict[int, Saving]


def total_saving(served: Iterable[Served], grid: int) -> Saving:
    """Sum up what requests were saved; `grid` is their budget's. O(n) time."""
    return reduce(_sum, (_saving(each, grid) for each in served), Saving())


def summarise(served: Sequence[Served], grid: int, shapes: Sequence[TreeShape]) -> Summary:
    """Sum up a replay of at least one request; `grid` is its budget's. O(n) time.

    Examples
    --------
    >>> from tree_placement.replay import Budget, replay, trace_of_prompts
    >>> from tree_placement.replay.policies import policy_named
    >>> from tree_placement.replay.shapes import shapes
    >>> trace = trace_of_prompts([range(640), [*range(330), *range(900, 1000)]], block=10)
    >>> served = replay(trace, policy_named("dense", trace, Budget()), Budget(grid=100))
    >>> summary = summarise(served, 100, shapes(trace))
    >>> summary.whole.share_of_dense_oracle, summary.whole.gap_per_hit
    (1.0, 30.0)
    """
    by_shape: dict[TreeShape, Saving] = dict.fromkeys(TreeShape, Saving())
    by_depth: dict[int, Saving] = {}
    for each, shape in zip(served, shapes, strict=True):
        one = _saving(each, grid)
        by_shape[shape] = _sum(by_shape[shape], one)
        if each.overlap:
            octave = 1 << (each.overlap.bit_length() - 1)
            by_depth[octave] = _sum(by_depth.get(octave, Saving()), one)
    return Summary(
        whole=total_saving(served, grid),
        states_written=sum(len(each.written) for each in served),
        states_live=sum(each.live for each in served) / len(served),
        by_shape=by_shape,
        by_depth=dict(sorted(by_depth.items())),
    )


def _saving(served: Served, grid: int) -> Saving:
    return Saving(
        requests=1,
        tokens=served.length,
        hit=served.hit,
        dense=served.overlap // grid * grid,
        gap=served.overlap - served.hit,
        overlaps=int(served.overlap > 0),
    )


def _sum(one: Saving, other: Saving) -> Saving:
    return Saving(*map(sum, zip(one, other, strict=True)))
