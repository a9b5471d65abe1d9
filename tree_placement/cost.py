"""What a placement costs: prefill time F(t) and expected recompute E[r].

Every solver and every test of this package uses the two definitions given here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tree_placement._check import (
    as_depths,
    check_at_least,
    check_weights,
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


@dataclass(frozen=True, eq=False)
class SparseWeights:
    """Overlap weights of the depths that carry any; every other depth weighs nothing.

    Parameters
    ----------
    depths
        Overlap depths in tokens, strictly rising, each >= 1; stored as int64 of shape (n,).
    weights
        Weight of each depth, finite and >= 0; stored as float64 of shape (n,).

    Raises
    ------
    ValueError
        If the shapes differ, depths do not rise or lie above 1, or a weight is bad.

    Examples
    --------
    >>> SparseWeights(depths=[1_500, 9_000], weights=[3, 1]).weights
    array([3., 1.])
    """

    depths: NDArray[np.int64]
    weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        depths = as_depths("depths", self.depths)
        weights = np.asarray(self.weights, dtype=np.float64)
        check_weights(weights)
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
        object.__setattr__(self, "depths", depths)
        object.__setattr__(self, "weights", weights)


Weights = ArrayLike | SparseWeights
"""Dense weights, where ``weights[i]`` belongs to overlap depth ``i + 1``, or sparse ones."""


def as_sparse(weights: Weights) -> tuple[SparseWeights, int | None]:
    """Return the positive weights with their depths, and the path's length where it is known.

    Dense weights say the length of the path, sparse ones do not (None). O(n) time.
    """
    if isinstance(weights, SparseWeights):
        positive = weights.weights > 0.0
        return SparseWeights(weights.depths[positive], weights.weights[positive]), None
    dense = np.asarray(weights, dtype=np.float64)
    check_weights(dense)
    positive_at = np.flatnonzero(dense)
    return SparseWeights(positive_at + 1, dense[positive_at]), dense.size


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
        If a weight is negative or not finite, or a depth is not on the path.

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
    serving = states[np.searchsorted(states, sparse.depths, side="right") - 1]
    return float(np.dot(sparse.weights, prefill(sparse.depths) - prefill(serving)))
