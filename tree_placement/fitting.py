"""Prefill cost fitted from measurements: how long a server takes for prompts of some lengths."""

import itertools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import check_positive, invalid
from tree_placement.cost import PrefillCost

_ROUNDING = 1e-24
"""Squared error, as a share of the longest time's square, that a further coefficient must save."""


def fit_prefill_cost(pairs: Iterable[tuple[float, float]]) -> PrefillCost:
    """Return the prefill cost that explains measured (tokens, seconds) pairs best.

    Parameters
    ----------
    pairs
        Length of a prompt in tokens and the seconds that its whole prefill took, nothing of it
        cached; both finite and > 0, with at least three different lengths. Lengths may repeat.

    Returns
    -------
    PrefillCost
        In seconds: ``linear`` per token, ``quadratic`` per token and token above it.

    Raises
    ------
    ValueError
        If a pair is bad, there are fewer than three different lengths, or times do not grow with
        the length.

    Notes
    -----
    Non-negative least squares of ``seconds = overhead + linear t + quadratic t^2 / 2``: the
    three are >= 0 and minimise the sum of squared errors. The overhead of a pass is fitted lest
    it be taken for the time of tokens, and then left out: every request pays it, wherever its
    states are. The minimum is the free least-squares fit on the coefficients that are positive
    in it, so it is the best of the seven free fits on some of the three without a negative
    coefficient. O(n) time and memory for n pairs.

    Examples
    --------
    >>> cost = fit_prefill_cost([(1_000, 0.35), (2_000, 0.80), (4_000, 2.0), (8_000, 5.6)])
    >>> f"{cost.linear:.5f} s a token, {cost.quadratic:.2e} s a token and token above it"
    '0.00030 s a token, 1.00e-07 s a token and token above it'
    """
    tokens, seconds = _columns(pairs)
    longest, slowest = tokens.max(), seconds.max()
    share = tokens / longest
    powers = np.stack((np.ones_like(share), share, 0.5 * share * share), axis=1)
    best, least = np.zeros(3), np.inf
    for count in (1, 2, 3):
        for chosen in map(list, itertools.combinations(range(3), count)):
            fitted = np.linalg.lstsq(powers[:, chosen], seconds / slowest, rcond=None)[0]
            error = float(np.sum((powers[:, chosen] @ fitted - seconds / slowest) ** 2))
            if (fitted >= 0.0).all() and error < least - _ROUNDING:
                best, least = np.zeros(3), error
                best[chosen] = fitted
    _, linear, quadratic = best * slowest
    if not linear + quadratic > 0.0:
        fix = "measure again, with longer prompts and nothing cached"
        raise invalid("pairs", "times that do not grow with the length", "times that do", fix)
    return PrefillCost(float(linear / longest), float(quadratic / longest**2))


def _columns(
    pairs: Iterable[tuple[float, float]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the checked lengths and times."""
    table = np.array(list(pairs), dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != 2:
        raise invalid("pairs", f"shape {table.shape}", "shape (n, 2)", "pass (tokens, seconds)")
    for row, (tokens, seconds) in enumerate(table.tolist()):
        check_positive(f"pairs[{row}] tokens", tokens, "drop this pair")
        check_positive(f"pairs[{row}] seconds", seconds, "drop this pair")
    lengths = np.unique(table[:, 0]).size
    if lengths < 3:
        need = "at least 3: overhead, linear and quadratic are fitted"
        raise invalid("pairs", f"{lengths} different lengths", need, "measure more lengths")
    return table[:, 0], table[:, 1]
