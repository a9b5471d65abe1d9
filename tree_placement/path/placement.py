"""Where to keep states on one path: exact by budget, exact by price, and evenly spaced.

The optimal cost on one path is convex in the number of states, so `place_priced` reaches the
cost of every budget with some price, and `place` takes the budget itself.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import check_at_least, check_count, sorted_depths
from tree_placement.cost import (
    PrefillCost,
    SparseWeights,
    Weights,
    as_sparse,
    check_sums,
    expected_recompute,
)


@dataclass(frozen=True, eq=False)
class Placement:
    """Depths chosen for new states, and what the path then costs.

    Parameters
    ----------
    depths
        Depths of the new states in tokens, strictly rising, int64 of shape (m,). States that
        existed before (``fixed``) are not among them.
    cost
        Expected recompute with the new and the fixed states together, in units of F times
        weight; it holds no price.
    """

    depths: NDArray[np.int64]
    cost: float


@dataclass(frozen=True, eq=False)
class _Sites:
    """Depths where a state stands or may be placed, from the root to the end of the path."""

    depths: NDArray[np.int64]
    prefill: NDArray[np.float64]
    mass: NDArray[np.float64]
    moment: NDArray[np.float64]
    fixed: NDArray[np.bool_]

    def new_depths(self) -> NDArray[np.int64]:
        return self.depths[~self.fixed]


@dataclass(frozen=True, eq=False)
class _Problem:
    """Checked input of `place` and `place_priced`."""

    weights: Weights
    cost: PrefillCost
    fixed: NDArray[np.int64]
    sites: _Sites

    def placement(self, depths: NDArray[np.int64]) -> Placement:
        states = np.concatenate((self.fixed, depths))
        return Placement(depths, expected_recompute(self.weights, states, cost=self.cost))


def place(
    weights: Weights,
    budget: int,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Collection[int] | NDArray[np.int64] = (),
    forbidden: Collection[int] | NDArray[np.int64] = (),
    minimum_depth: int = 0,
) -> Placement:
    """Return at most `budget` new depths of least expected recompute.

    Parameters
    ----------
    weights
        Weight of each overlap depth: dense, ``weights[i]`` belongs to depth ``i + 1``, or
        `SparseWeights`.
    budget
        Number of new states at most, >= 0. Fewer are returned where no further one would help.
    grid
        New states stand at multiples of this many tokens, >= 1.
    cost
        F; counts tokens if None.
    fixed
        Depths of states that exist already, on the grid or off it. They serve overlaps, are not
        counted in `budget`, and are not returned.
    forbidden
        Depths where no new state may stand.
    minimum_depth
        The shallowest depth allowed for a new state, >= 0.

    Returns
    -------
    Placement
        The new depths only, and the cost with the fixed states.

    Raises
    ------
    ValueError
        If a weight is negative or not finite, their sums overflow, `budget` or `minimum_depth` is
        below 0, `grid` is below 1, or a fixed or forbidden depth is below 1 or deeper than dense
        weights reach.

    Notes
    -----
    Time O(n log n + s M) and memory O(n + s M) (the backtrack: 4 bytes a site and state), for n
    weights, M states, and s sites: the fixed depths, and of the allowed grid depths only the
    deepest one at or above each overlap of positive weight. That loses nothing, under any
    increasing F. Proof: take a state at an allowed depth c, let t be the shallowest such overlap
    at or below it, and c' the deepest allowed grid depth with c' <= t, so c <= c'. No overlap
    lies in [c, c'), so a state moved from c to c' still serves every overlap that c served, and
    each from at least as deep. Where a fixed state lies in [c', t], c serves no overlap better
    than it, so such a c' is left out as well. Each site that is left helps its own t strictly,
    so more budget is always worth using until the sites run out.

    The placement is exact up to the rounding of its prefix sums: of weights that span more than
    about 14 orders of magnitude the small ones are lost.

    The recurrence is that of Shirokikh and Nikolenko (arXiv 2605.05219); the monotone hull makes
    each of its layers linear.

    Examples
    --------
    >>> place([0, 0, 5, 0, 0, 0, 2, 1], budget=1)
    Placement(depths=array([3]), cost=13.0)
    >>> place(SparseWeights([1_500, 9_000], [3, 1]), budget=2, grid=64)
    Placement(depths=array([1472, 8960]), cost=124.0)
    """
    budget = check_count("budget", budget, 0, "pass the number of new states allowed")
    problem = _problem(weights, grid, cost, fixed, forbidden, minimum_depth)
    sites = problem.sites
    candidates = sites.new_depths()
    if budget >= candidates.size:
        return problem.placement(candidates)
    from tree_placement.path import _dp

    chosen = _dp.budgeted(sites.prefill, sites.mass, sites.moment, sites.fixed, budget)
    return problem.placement(sites.depths[chosen[::-1]])


def place_priced(
    weights: Weights,
    price: float,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Collection[int] | NDArray[np.int64] = (),
    forbidden: Collection[int] | NDArray[np.int64] = (),
    minimum_depth: int = 0,
) -> Placement:
    """Return the new depths that minimise expected recompute plus `price` for each of them.

    Of several placements of the same total, one with the fewest states is returned, where sums are
    exact in float64 (whole numbers); elsewhere rounding may decide between totals that are equal.

    Parameters
    ----------
    weights, grid, cost, fixed, forbidden, minimum_depth
        As for `place`.
    price
        What a new state must save to be worth its slot, in units of F times weight: finite,
        >= 0.

    Returns
    -------
    Placement
        The new depths only, and the cost with the fixed states, without the price.

    Raises
    ------
    ValueError
        As for `place`, and if `price` is negative or not finite.

    Notes
    -----
    O(n log n + s) time and O(n + s) memory for n weights and s sites (see `place`).

    Examples
    --------
    >>> place_priced([0, 0, 5, 0, 0, 0, 2, 1], price=12)
    Placement(depths=array([3]), cost=13.0)
    >>> place_priced([0, 0, 5, 0, 0, 0, 2, 1], price=11)
    Placement(depths=array([3, 7]), cost=1.0)
    """
    check_at_least("price", price, 0.0, "pass what a state must save")
    problem = _problem(weights, grid, cost, fixed, forbidden, minimum_depth)
    sites = problem.sites
    if not sites.new_depths().size:
        return problem.placement(sites.new_depths())
    from tree_placement.path import _dp

    chosen = _dp.priced(sites.prefill, sites.mass, sites.moment, sites.fixed, float(price))
    return problem.placement(sites.depths[chosen[::-1]])


def balanced(length: int, budget: int, *, grid: int = 1) -> NDArray[np.int64]:
    """Return the depths of at most `budget` states that cut the path into even gaps.

    Gaps between neighbouring states, and from the root, differ by at most one grid step, the
    longer ones deeper. This is optimal for uniform weights on depths 1..`length` and for the
    worst overlap.

    Parameters
    ----------
    length
        Deepest overlap in tokens, >= 0.
    budget
        Number of states at most, >= 0.
    grid
        States stand at multiples of this many tokens, >= 1.

    Returns
    -------
    ndarray
        Depths in tokens, strictly rising, int64.

    Raises
    ------
    ValueError
        If `length` or `budget` is below 0, or `grid` below 1.

    Notes
    -----
    O(budget) time. The last gap may be cut short by the end of the path, so it is best a long
    one: that, and gaps that differ by at most one, leave no exchange of a grid step between two
    gaps that lowers the sum of a convex function of their lengths.

    Examples
    --------
    >>> balanced(9, 2)
    array([3, 6])
    >>> balanced(1_000, 3, grid=64)
    array([256, 512, 768])
    """
    even = _even(length, budget, grid)
    share, longer = divmod(even.cells, even.gaps)
    steps = np.full(even.gaps, share, dtype=np.int64)
    steps[even.gaps - longer :] += 1
    return np.cumsum(steps[:-1]) * even.grid


def balanced_mean(length: int, budget: int, *, grid: int = 1) -> float:
    """Return the mean recompute in tokens of `balanced` over overlap depths 1..`length`.

    Arguments and errors as for `balanced`, but `length` >= 1. O(1) time; on a grid of 1 the mean
    is ``length / (2 (budget + 1)) + O(1)``.

    Examples
    --------
    >>> balanced_mean(9, 2)
    1.3333333333333333
    """
    length = check_count("length", length, 1, "pass the depth of the deepest overlap")
    gaps = _gaps(_even(length, budget, grid))
    return sum(count * _triangle(tokens) for count, tokens in gaps) / length


def balanced_worst(length: int, budget: int, *, grid: int = 1) -> int:
    """Return the worst recompute in tokens of `balanced` over overlap depths 1..`length`.

    Arguments and errors as for `balanced`. O(1) time; on a grid of 1 it is
    ``ceil((length + 1) / (budget + 1)) - 1``, which no placement betters.

    Examples
    --------
    >>> balanced_worst(9, 2)
    3
    """
    return max(tokens for count, tokens in _gaps(_even(length, budget, grid)) if count) - 1


class _Even(NamedTuple):
    """A path cut evenly: how many gaps of how many grid cells, the last of them cut short."""

    length: int
    grid: int
    gaps: int
    cells: int


def _even(length: int, budget: int, grid: int) -> _Even:
    length = check_count("length", length, 0, "pass the depth of the deepest overlap")
    budget = check_count("budget", budget, 0, "pass the number of states allowed")
    grid = check_count("grid", grid, 1, "pass the distance between depths allowed")
    cells = length // grid + 1
    return _Even(length, grid, min(budget + 1, cells), cells)


def _gaps(even: _Even) -> list[tuple[int, int]]:
    """Return (count, tokens) of the short gaps, of the long ones, and of the last gap."""
    share, longer = divmod(even.cells, even.gaps)
    short, long = share * even.grid, (share + 1) * even.grid
    cut = even.cells * even.grid - even.length - 1
    if longer:
        return [(even.gaps - longer, short), (longer - 1, long), (1, long - cut)]
    return [(even.gaps - 1, short), (1, short - cut)]


def _triangle(tokens: int) -> int:
    """Return the summed recompute of a gap: 0 + 1 + ... + (tokens - 1)."""
    return tokens * (tokens - 1) // 2


def _problem(
    weights: Weights,
    grid: int,
    cost: PrefillCost | None,
    fixed: Collection[int] | NDArray[np.int64],
    forbidden: Collection[int] | NDArray[np.int64],
    minimum_depth: int,
) -> _Problem:
    """Check the input that `place` and `place_priced` share, and lay out its sites."""
    grid = check_count("grid", grid, 1, "pass the distance between depths allowed")
    minimum_depth = check_count("minimum_depth", minimum_depth, 0, "pass 0 to allow every depth")
    sparse, length = as_sparse(weights)
    standing = sorted_depths("fixed", fixed, length)
    barred = sorted_depths("forbidden", forbidden, length)
    prefill = PrefillCost() if cost is None else cost
    if sparse.depths.size:
        check_sums(sparse.weights, int(sparse.depths[-1]) + 1, prefill)
    candidates = _candidates(sparse.depths, grid, standing, barred, max(minimum_depth, 1))
    return _Problem(weights, prefill, standing, _sites(sparse, candidates, standing, prefill))


def _candidates(
    overlaps: NDArray[np.int64],
    grid: int,
    fixed: NDArray[np.int64],
    forbidden: NDArray[np.int64],
    minimum_depth: int,
) -> NDArray[np.int64]:
    """Return the deepest allowed grid depth at or above each overlap, where it can help."""
    cells = overlaps // grid
    barred = forbidden[forbidden % grid == 0] // grid
    if barred.size:
        opens_run = np.concatenate(([True], np.diff(barred) > 1))
        above_run = barred[opens_run][np.cumsum(opens_run) - 1] - 1
        at = np.minimum(np.searchsorted(barred, cells), barred.size - 1)
        cells = np.where(barred[at] == cells, above_run[at], cells)
    depths = cells * grid
    standing = np.concatenate(([0], fixed))
    serving = standing[np.searchsorted(standing, overlaps, side="right") - 1]
    helpful = depths[(depths >= minimum_depth) & (depths > serving)]
    # They rise with the overlaps, so equal ones are neighbours: np.unique would sort or hash.
    is_new = np.ones(helpful.size, dtype=np.bool_)
    np.not_equal(helpful[1:], helpful[:-1], out=is_new[1:])
    return np.asarray(helpful[is_new])


def _sites(
    weights: SparseWeights,
    candidates: NDArray[np.int64],
    fixed: NDArray[np.int64],
    cost: PrefillCost,
) -> _Sites:
    """Merge root, candidates, fixed depths and the path's end, with the sums that solvers need."""
    end = int(weights.depths[-1]) + 1 if weights.depths.size else 1
    states = np.concatenate(([0], fixed[fixed < end], [end]))
    depths = np.sort(np.concatenate((states, candidates)), kind="stable")
    above = np.searchsorted(weights.depths, depths)
    mass = np.concatenate(([0.0], np.cumsum(weights.weights)))
    moment = np.concatenate(([0.0], np.cumsum(weights.weights * cost(weights.depths))))
    return _Sites(
        depths=depths,
        prefill=cost(depths),
        mass=mass[above],
        moment=moment[above],
        fixed=np.isin(depths, states),
    )
