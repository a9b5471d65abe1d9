"""What a placement costs: prefill time F(t) and expected recompute E[r].

Every solver and every test of this package uses the two definitions given here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tree_placement._check import (
    as_depths,
    as_weights,
    check_at_least,
    invalid,
    sorted_depths,
)


@dataclass(frozen=True)
class PrefillCost:
    """Time to prefill the first t tokens: ``F(t) = linear * t + quadratic * t**2 / 2``.

    F is zero at the root, strictly increasing, and convex. The default counts tokens, F(t) = t.

    Parameters
    ----------
    linear
        Time a token takes wherever it stands: finite, >= 0.
    quadratic
        Time that attention adds to a token for each token above it: finite, >= 0. At least one
        of the two must be positive.

    Raises
    ------
    ValueError
        If a coefficient is negative or not finite, or both are zero.

    Examples
    --------
    >>> PrefillCost()(1_500)
    array(1500.)
    >>> PrefillCost(linear=1.0, quadratic=0.5)([2, 4])
    array([3., 8.])
    """

    linear: float = 1.0
    quadratic: float = 0.0

    def __post_init__(self) -> None:
        check_at_least("linear", self.linear, 0.0, "pass the time a token takes")
        check_at_least("quadratic", self.quadratic, 0.0, "pass the time attention adds")
        if self.linear == 0.0 and self.quadratic == 0.0:
            raise invalid(
                "linear and quadratic",
                "0 and 0",
                "at least one above 0",
                "use PrefillCost() to count tokens",
            )

    def __call__(self, depths: ArrayLike) -> NDArray[np.float64]:
        """Return F at `depths` (tokens), as float64 of the same shape."""
        tokens = np.asarray(depths, dtype=np.float64)
        return np.asarray(tokens * (self.linear + 0.5 * self.quadratic * tokens))


_LARGEST_COST = 1e290
"""Recompute of one node that leaves sums over all nodes finite."""


@dataclass(frozen=True, eq=False)
class SparseWeights:
    """Overlap weights of the depths that carry any; every other depth weighs nothing.

    Parameters
    ----------
    depths
        Overlap depths in tokens, strictly rising, from 1 to 2**53; stored as int64 of shape (n,).
    weights
        Weight of each depth, finite and >= 0; stored as float64 of shape (n,).

    Raises
    ------
    ValueError
        If the shapes differ, depths do not rise or leave their range, or a weight is bad.

    Notes
    -----
    The arrays are copied and cannot be written to. O(n) time and memory.

    Examples
    --------
    >>> SparseWeights(depths=[1_500, 9_000], weights=[3, 1]).weights
    array([3., 1.])
    """

    depths: NDArray[np.int64]
    weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        depths = as_depths("depths", self.depths)
        weights = as_weights(self.weights).copy()
        if depths.shape != weights.shape:
            raise invalid(
                "weights",
                f"{weights.size} for {depths.size} depths",
                "one weight a depth",
                "pass arrays of one size",
            )
        if depths.size and (depths[0] < 1 or (depths[1:] <= depths[:-1]).any()):
            raise invalid(
                "depths",
                "depths out of order or below 1",
                "strictly rising depths >= 1",
                "sort them and add up the weights of equal ones",
            )
        self._keep(depths, weights)

    @classmethod
    def _checked(cls, depths: NDArray[np.int64], weights: NDArray[np.float64]) -> "SparseWeights":
        """Return the weights of arrays that are known to be good, and that no one else holds."""
        kept = object.__new__(cls)
        kept._keep(depths, weights)
        return kept

    def _keep(self, depths: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        for name, array in (("depths", depths), ("weights", weights)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)


Weights = ArrayLike | SparseWeights
"""Dense weights, where ``weights[i]`` belongs to overlap depth ``i + 1``, or sparse ones."""


def as_sparse(weights: Weights) -> tuple[SparseWeights, int | None]:
    """Return the positive weights with their depths, and the path's length where it is known.

    Dense weights say the length of the path, sparse ones do not (None). O(n) time.
    """
    if isinstance(weights, SparseWeights):
        positive = weights.weights > 0.0
        if positive.all():
            return weights, None
        return SparseWeights._checked(weights.depths[positive], weights.weights[positive]), None
    dense = as_weights(weights)
    positive_at = np.flatnonzero(dense)
    return SparseWeights._checked(positive_at + 1, dense[positive_at]), dense.size


def check_sums(weights: NDArray[np.float64], deepest: int, cost: PrefillCost) -> None:
    """Raise ValueError unless all that a solver adds up or multiplies is finite.

    A solver on a path multiplies differences of costs, at most the sum of the weights times F at
    the deepest overlap, by differences of F; the margin is for sums of a few of them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total, longest = float(weights.sum()), float(cost(deepest))
    if not 16.0 * total * max(longest, 1.0) * max(longest, 1.0) < np.inf:
        got = f"a sum of {total:g} with F = {longest:g} at the deepest overlap"
        raise invalid("weights", got, "finite sums", "scale the weights or the cost down")


def check_new_weight(weight: float, depth: int, cost: PrefillCost) -> None:
    """Raise ValueError for a weight that is bad, or could make sums over any nodes overflow."""
    check_at_least("weight", weight, 0.0, "drop or repair this weight")
    if not weight * max(float(cost(depth)), 1.0) <= _LARGEST_COST:
        got = f"{weight:g} at depth {depth}"
        raise invalid("weight", got, "finite sums", "scale the weights or the cost down")


def expected_recompute(
    weights: Weights,
    depths: Iterable[int] | NDArray[np.int64],
    *,
    cost: PrefillCost | None = None,
) -> float:
    """Return E[r] = sum over t of p_t (F(t) - F(l(t))).

    l(t) is the deepest state at or above depth t, or the root (depth 0) where there is none.
    The sum runs over the weights as given: with probabilities it is a mean, with counts a total.

    Parameters
    ----------
    weights
        p_t: dense, ``weights[i]`` belongs to overlap depth ``i + 1``, or `SparseWeights`.
    depths
        Depths of the states in tokens, each >= 1 and, with dense weights, on the path; in any
        order.
    cost
        F; counts tokens if None.

    Raises
    ------
    ValueError
        If a weight is negative or not finite, their sums overflow, or a depth is not on the path.

    Notes
    -----
    O(n log m) time for n weights and m states. The objective is that of Shirokikh and
    Nikolenko, "Sparse Prefix Caching for Hybrid and Recurrent LLM Serving", arXiv 2605.05219.

    Examples
    --------
    >>> expected_recompute([0, 0, 1, 0, 1], [])
    8.0
    >>> expected_recompute([0, 0, 1, 0, 1], [3])
    2.0
    """
    sparse, length = as_sparse(weights)
    prefill = PrefillCost() if cost is None else cost
    states = np.concatenate(([0], sorted_depths("depths", depths, length)))
    if sparse.depths.size:
        check_sums(sparse.weights, int(sparse.depths[-1]), prefill)
    serving = states[np.searchsorted(states, sparse.depths, side="right") - 1]
    return float(np.dot(sparse.weights, prefill(sparse.depths) - prefill(serving)))
