"""How far an estimated forecast can mislead a placement: the guarantees of the theory, as numbers.

Weights p and q are compared by |p - q|_1 = sum over t of |p_t - q_t|, which for distributions is
twice their total variation and at most 2. N is the length of the path, F the prefill time, and
E_p the expected recompute under p (`expected_recompute`). Every bound holds for all inputs within
its assumptions, not only in the limit. Proofs are in the notes; the objective is that of Shirokikh
and Nikolenko (arXiv 2605.05219).
"""

import math
from typing import NamedTuple

from tree_placement._check import (
    check_at_least,
    check_count,
    check_positive,
    check_share,
    invalid,
)
from tree_placement.cost import PrefillCost


def stability(length: int, distance: float, *, cost: PrefillCost | None = None) -> float:
    """Return F(N) |p - q|_1, the most by which expected recompute under p and under q differ.

    Parameters
    ----------
    length
        N, the deepest overlap in tokens, >= 0.
    distance
        |p - q|_1, >= 0.
    cost
        F; counts tokens if None, which makes the bound N |p - q|_1.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    For every placement c, ``|E_p(c) - E_q(c)| <= F(N) |p - q|_1``; and the same for the least
    costs of a budget, and for p and q of any sums. Proof: the recompute of depth t,
    ``r_t = F(t) - F(l(t))``, lies in [0, F(N)], since F rises from F(0) = 0; so
    ``|sum_t (p_t - q_t) r_t| <= F(N) |p - q|_1``. Of two functions of c that differ by at most d
    everywhere, the minima differ by at most d. Convexity of F is not needed.

    It is attained by all of p at depth N, q = 0 and no states. Where p and q have equal sums half
    of it holds, since r_t may then be replaced by ``r_t - F(N) / 2``.

    Examples
    --------
    >>> stability(1_000, 0.25)
    250.0
    """
    length = check_count("length", length, 0, "pass the depth of the deepest overlap")
    check_at_least("distance", distance, 0.0, "pass the sum of the absolute differences")
    prefill = PrefillCost() if cost is None else cost
    return float(prefill(length)) * distance


def estimation_error(support: int, size: float, failure: float) -> float:
    """Return how far, in |.|_1, an average of `size` observations may be from what it estimates.

    Parameters
    ----------
    support
        s, the number of depths at which an overlap can end, >= 1; N if nothing else is known.
    size
        n, the number of observations, or the effective sample size of weighted ones, > 0.
    failure
        delta, the probability of a larger distance, in (0, 1].

    Returns
    -------
    float
        ``sqrt(s / n) + sqrt(2 ln(1 / delta) / n)``.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    Assumes independent observations with weights w_i that sum to 1 and do not depend on them, and
    ``1 / n = sum_i w_i^2``; each may have a distribution p_i of its own, and what is estimated is
    ``sum_i w_i p_i``. Proof: the estimate at depth t has variance at most ``sum_i w_i^2 p_it``, so
    by the inequalities of Jensen and of Cauchy and Schwarz the expected distance is at most
    ``sum_t sqrt(sum_i w_i^2 p_it) <= sqrt(s sum_i w_i^2) = sqrt(s / n)``. Another value of
    observation i moves the distance by at most 2 w_i, so by McDiarmid's inequality it exceeds its
    expectation by more than x with probability at most ``exp(-n x^2 / 2)``.

    Source of the last step: McDiarmid, "On the method of bounded differences", Surveys in
    Combinatorics, 1989.

    Examples
    --------
    >>> estimation_error(16, 400, failure=1.0)
    0.2
    """
    support = check_count("support", support, 1, "pass the number of depths an overlap can have")
    check_positive("size", size, "observe something first")
    check_share("failure", failure, "pass the probability that the bound may fail with")
    return math.sqrt(support / size) + math.sqrt(-2.0 * math.log(failure) / size)


def plug_in_regret(length: int, error: float, *, cost: PrefillCost | None = None) -> float:
    """Return 2 F(N) |p - q|_1, the most that the placement that is best for q loses under p.

    With `estimation_error` of n observations as `error` this is, with probability 1 - delta,
    ``2 F(N) (sqrt(N / n) + sqrt(2 ln(1 / delta) / n))``.

    Parameters
    ----------
    length
        N, the deepest overlap in tokens, >= 0.
    error
        |p - q|_1 of the true p and the estimated q, or a bound on it, >= 0.
    cost
        F; counts tokens if None.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    With c the placement that is best for p and d the one that is best for q, by `stability` and
    since ``E_q(d) <= E_q(c)``,

        E_p(d) <= E_q(d) + F(N) |p - q|_1 <= E_q(c) + F(N) |p - q|_1 <= E_p(c) + 2 F(N) |p - q|_1.

    Half of it holds too: the regret is at most ``sum_t (p_t - q_t) x_t``, x_t the recompute of
    depth t under d less that under c, which lies in [-F(N), F(N)]. That half is nearly attained
    where p has a little more weight at depth N than a q for which a state at N and one at depth 1
    are as good. Any set of placements may be searched,
    as long as both are the best of it.

    Examples
    --------
    >>> plug_in_regret(1_000, estimation_error(16, 400, failure=1.0))
    400.0
    """
    check_at_least("error", error, 0.0, "pass the sum of the absolute differences")
    return 2.0 * stability(length, error, cost=cost)


def effective_sample_size(decay: float, count: int) -> float:
    """Return how many equally weighted observations have the variance of `count` decayed ones.

    Parameters
    ----------
    decay
        g, the factor on the weight of all earlier observations at each new one, in (0, 1].
    count
        t, the number of observations, >= 0.

    Returns
    -------
    float
        ``(sum_i w_i)^2 / sum_i w_i^2 = (1 + g) (1 - g^t) / ((1 - g) (1 + g^t))`` for
        ``w_i = g^(t - i)``; t where g is 1. It rises with t, towards ``(1 + g) / (1 - g)``.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> effective_sample_size(0.5, 2)
    1.8
    >>> effective_sample_size(1.0, 7)
    7.0
    """
    check_share("decay", decay, "pass 1 to forget nothing")
    count = check_count("count", count, 0, "pass the number of observations")
    if decay == 1.0:
        return float(count)
    faded = -math.expm1(count * math.log(decay))
    return (1.0 + decay) * faded / ((1.0 - decay) * (2.0 - faded))


def mean_age(decay: float, count: int) -> float:
    """Return the weighted mean age of `count` decayed observations, the newest being of age 1.

    Parameters
    ----------
    decay
        g, the factor on the weight of all earlier observations at each new one, in (0, 1].
    count
        t, the number of observations, >= 1.

    Returns
    -------
    float
        ``1 / (1 - g) - t g^t / (1 - g^t)``; ``(t + 1) / 2`` where g is 1.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> mean_age(0.5, 2)
    1.3333333333333335
    """
    check_share("decay", decay, "pass 1 to forget nothing")
    count = check_count("count", count, 1, "observe something first")
    rate = -math.log(decay)
    if rate * count < 1e-4:
        return 0.5 * (count + 1) - rate * (count + 1.0) * (count - 1.0) / 12.0
    return 1.0 / (1.0 - decay) - count / math.expm1(min(rate * count, 700.0))


class DecayedError(NamedTuple):
    """Bounds on the two parts of the expected |.|_1 between a decayed estimate and the truth.

    Parameters
    ----------
    bias
        What is due to old observations: from the estimate's expectation to the truth.
    deviation
        What is due to chance: from the estimate to its expectation.
    """

    bias: float
    deviation: float

    @property
    def total(self) -> float:
        """Bound on the expected distance, at most 2 as every distance of two distributions."""
        return min(2.0, self.bias + self.deviation)


def decayed_error(support: int, decay: float, count: int, drift: float) -> DecayedError:
    """Return bias and deviation of `count` decayed observations of a distribution that drifts.

    Parameters
    ----------
    support
        s, the number of depths at which an overlap can end, >= 1; N if nothing else is known.
    decay
        g, the factor on the weight of all earlier observations at each new one, in (0, 1].
    count
        t, the number of observations, >= 1.
    drift
        d, the most that the distribution of one overlap and that of the next differ by, in |.|_1
        (twice their total variation), in 0..2.

    Returns
    -------
    DecayedError
        ``bias = min(2, d a)``, with a the `mean_age`, and
        ``deviation = sqrt(s (1 - g) (1 + g^t) / ((1 + g) (1 - g^t)))``.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    Assumes independent observations of distributions p_1, ..., p_t, and
    ``|p_(i+1) - p_i|_1 <= d``. The estimate ``sum_i w_i [x_i = .]``, with
    ``w_i = (1 - g) g^(t - i) / (1 - g^t)``, is compared with p_(t+1), the distribution of the
    overlap that it is to forecast. Its expectation ``sum_i w_i p_i`` is at most
    ``sum_i w_i |p_i - p_(t+1)|_1 <= sum_i w_i min(2, d (t + 1 - i))`` away, hence the bias; mass
    that moves from one depth to another at a constant rate attains it. The deviation is the first
    term of `estimation_error` at the `effective_sample_size`; with the second one added, the bound
    holds with confidence.

    Examples
    --------
    >>> error = decayed_error(support=9, decay=0.8, count=80, drift=0.1)
    >>> round(error.bias, 3), round(error.deviation, 3)
    (0.5, 1.0)
    """
    support = check_count("support", support, 1, "pass the number of depths an overlap can have")
    _check_drift(drift)
    bias = min(2.0, drift * mean_age(decay, count))
    return DecayedError(bias, math.sqrt(support / effective_sample_size(decay, count)))


class BestDecay(NamedTuple):
    """The decay of least expected error after a long history.

    Parameters
    ----------
    decay
        g, in (0, 1]; 1 only without drift.
    error
        The bound that it minimises: bias and deviation together, in |.|_1.
    """

    decay: float
    error: float


def best_decay(support: int, drift: float) -> BestDecay:
    """Return the decay that tracks a drifting distribution with the least expected error.

    Parameters
    ----------
    support
        s, the number of depths at which an overlap can end, >= 1.
    drift
        d, the most that the distribution of one overlap and that of the next differ by, in |.|_1
        (twice their total variation), in 0..2 and below ``sqrt(s)``.

    Returns
    -------
    BestDecay
        ``g = (1 - r) / (1 + r)`` for ``r = (d^2 / s)^(1/3)``, whose effective sample size is 1 / r,
        and the error ``sqrt(s r) (3 + r) / 2``.

    Raises
    ------
    ValueError
        If an argument is out of its range. From a drift of ``sqrt(s)`` on only the last
        observation would be worth remembering.

    Notes
    -----
    For t to infinity `decayed_error` is ``d / h + sqrt(s h / (2 - h))`` with h = 1 - g, before
    its bias is cut off at 2. The derivative has the sign of
    ``(h / (2 - h))^(3/2) - d / sqrt(s)``, which rises with h: the only minimum is where
    ``h / (2 - h) = r``. The error grows with the cube root of the drift; from 2 on, the distance
    of any two distributions, it says nothing.

    Examples
    --------
    >>> best = best_decay(support=64, drift=0.001)
    >>> round(best.decay, 3), round(best.error, 2)
    (0.995, 0.6)
    """
    support = check_count("support", support, 1, "pass the number of depths an overlap can have")
    _check_drift(drift)
    if drift >= math.sqrt(support):
        raise invalid("drift", drift, f"drift < sqrt({support})", "keep the last observation only")
    ratio = math.cbrt(drift**2 / support)
    return BestDecay((1.0 - ratio) / (1.0 + ratio), math.sqrt(support * ratio) * (3.0 + ratio) / 2)


def _check_drift(drift: float) -> None:
    if not 0.0 <= drift <= 2.0:
        raise invalid("drift", drift, "0 <= drift <= 2", "pass the movement in |.|_1 a step")
