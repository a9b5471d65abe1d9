"""Statistics of overlap: where new prompts leave earlier ones, and where they will next.

Prompts leave at a depth from the start (a shared system prompt ends) or at a distance from the
end of the earlier prompt (a document is asked about again). Pooled over paths of many lengths,
either kind is sharp in its own coordinate and smeared in the other, so both are kept, and each
observation is shared between them by how well each explains it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import check_count, check_positive, invalid
from tree_placement._histogram import Bins, OverlapHistogram
from tree_placement.cost import SparseWeights

_PRIOR_POINTS = 256


class OverlapStatistics:
    """Overlaps of one scope, a subtree or the whole tree, in both coordinates.

    Parameters
    ----------
    decay
        Factor on the weight of all earlier observations at each new one, in (0, 1].
    bin
        Width of the histograms' bins in tokens, >= 1.
    maximum_bins
        Bins kept in each of the two histograms, >= 1.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    The two histograms are the components of a mixture, learned by online
    expectation-maximisation. The share of the start component and its density are both read off
    the decayed histograms, so their product, in a posterior responsibility, is the mass around
    the overlap itself. With K_s the mass of the three bins around the overlap, from the start,
    K_e that around the distance from the end, and an earlier prompt of L tokens,

        responsibility = (K_s / 3b + 2r / L) / (K_s / 3b + K_e / 3b + 2 / L)

    for bins of b tokens. The floor, two observations spread evenly over the prompt, is shared as
    the `prior` r says: 1/2 without evidence. Overlaps of prompts of one length cannot tell the
    coordinates apart and stay shared; a second length decides.

    Examples
    --------
    >>> statistics = OverlapStatistics()
    >>> statistics.observe(1_500, 5_000)
    0.5
    >>> statistics.observe(1_500, 8_000) > 0.9
    True
    """

    def __init__(self, decay: float = 0.99, bin: int = 64, maximum_bins: int = 4096) -> None:
        self._start = OverlapHistogram(decay, bin, maximum_bins)
        self._end = OverlapHistogram(decay, bin, maximum_bins)
        self._decay = decay
        self._kernel = 1.0 / (3 * bin)
        self._total = 0.0
        self._squares = 0.0

    @property
    def start(self) -> OverlapHistogram:
        """Histogram over depth from the start."""
        return self._start

    @property
    def end(self) -> OverlapHistogram:
        """Histogram over distance from the end of the earlier prompt."""
        return self._end

    @property
    def effective_size(self) -> float:
        """(sum w)^2 / sum w^2 over the decayed observations; 0.0 before the first."""
        return self._total**2 / self._squares if self._squares else 0.0

    def observe(self, overlap: int, earlier_length: int, prior: float = 0.5) -> float:
        """Learn one overlap, and return the responsibility of the start coordinate for it.

        Parameters
        ----------
        overlap
            Depth in tokens to which a new prompt matched an earlier one, >= 1.
        earlier_length
            Length of the earlier prompt in tokens, >= 1. The distance from its end is
            ``max(earlier_length - overlap, 0)``.
        prior
            Responsibility of the start where this scope has no evidence, in 0..1; a wider
            scope's responsibility, where there is one.

        Raises
        ------
        ValueError
            If `overlap` or `earlier_length` is below 1, or `prior` outside 0..1.

        Notes
        -----
        Both histograms decay and take their share of the observation. O(1) time.
        """
        check_count("overlap", overlap, 1, "do not observe prompts that share nothing")
        check_count("earlier_length", earlier_length, 1, "pass the earlier prompt's length")
        if not 0.0 <= prior <= 1.0:
            raise invalid("prior", prior, "0 <= prior <= 1", "pass a wider scope's responsibility")
        distance = max(earlier_length - overlap, 0)
        floor = 2.0 / earlier_length
        start = self._start.mass_near(overlap) * self._kernel + floor * prior
        end = self._end.mass_near(distance) * self._kernel + floor * (1.0 - prior)
        responsibility = start / (start + end)
        self._start.observe(overlap, responsibility)
        self._end.observe(distance, 1.0 - responsibility)
        self._total = self._total * self._decay + 1.0
        self._squares = self._squares * self._decay**2 + 1.0
        return responsibility

    def on_path(self, length: int) -> Bins:
        """Return the bins of both histograms whose mean falls on a path of `length` tokens.

        A distance e from the end stands at depth ``length - e``; means outside 1..`length` are
        left out. All masses together, on the path and off it, are the decayed count `total`.
        O(bins) time.
        """
        start, end = self._start.bins(), self._end.bins()
        depths = np.concatenate((start.means, length - end.means))
        kept = ((depths >= 1.0) & (depths <= length)).nonzero()[0]
        variances = np.concatenate((start.variances, end.variances))
        masses = np.concatenate((start.masses, end.masses))
        return Bins(depths.take(kept), variances.take(kept), masses.take(kept))

    @property
    def total(self) -> float:
        """Decayed count of the observations."""
        return self._total


class OverlapModel:
    """Overlap statistics of the whole tree and of its subtrees, in bounded memory.

    Parameters
    ----------
    decay, bin
        As for `OverlapStatistics`, in every scope.
    maximum_scopes
        Subtree scopes remembered, >= 1; those observed longest ago are forgotten first.
    maximum_bins
        Bins of each global histogram, >= 1.
    scope_bins
        Bins of each histogram of a subtree scope, >= 1.
    shrinkage
        Observations a subtree must have to count as much as its parent scope, > 0 (kappa).
    prior_size
        Observations that the uniform prior is worth, > 0 (kappa_0).

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> model = OverlapModel()
    >>> for length in (5_000, 8_000, 6_000):
    ...     model.observe([7], overlap=1_500, earlier_length=length)
    >>> forecast = model.forecast([7], length=9_000)
    >>> int(forecast.depths[forecast.weights.argmax()])
    1500
    """

    def __init__(
        self,
        decay: float = 0.99,
        bin: int = 64,
        maximum_scopes: int = 4096,
        *,
        maximum_bins: int = 4096,
        scope_bins: int = 256,
        shrinkage: float = 8.0,
        prior_size: float = 1.0,
    ) -> None:
        check_count("maximum_scopes", maximum_scopes, 1, "pass the number of scopes to remember")
        check_count("scope_bins", scope_bins, 1, "pass the number of bins to keep in a scope")
        check_positive("shrinkage", shrinkage, "pass the evidence that outweighs a parent scope")
        check_positive("prior_size", prior_size, "pass the evidence that outweighs the prior")
        self._decay = decay
        self._bin = bin
        self._maximum_scopes = maximum_scopes
        self._scope_bins = scope_bins
        self._shrinkage = shrinkage
        self._prior_size = prior_size
        self._tree = OverlapStatistics(decay, bin, maximum_bins)
        self._scopes: dict[int, OverlapStatistics] = {}

    def __len__(self) -> int:
        """Return the number of subtree scopes remembered."""
        return len(self._scopes)

    def __contains__(self, scope: int) -> bool:
        """Return whether `scope` has statistics of its own."""
        return scope in self._scopes

    @property
    def tree(self) -> OverlapStatistics:
        """Statistics of the whole tree."""
        return self._tree

    def observe(self, scopes: Sequence[int], overlap: int, earlier_length: int) -> None:
        """Learn one overlap in the whole tree and in each of `scopes`.

        Parameters
        ----------
        scopes
            Ids of the subtrees that hold the earlier prompt, the narrowest first.
        overlap, earlier_length
            As for `OverlapStatistics.observe`. A scope's prior is the responsibility found in
            the next wider one.

        Raises
        ------
        ValueError
            If `overlap` or `earlier_length` is below 1.

        Notes
        -----
        O(1) time a scope. Adds unknown scopes, and forgets the oldest above the maximum.
        """
        responsibility = self._tree.observe(overlap, earlier_length)
        for scope in reversed(scopes):
            statistics = self._scopes.pop(scope, None)
            if statistics is None:
                statistics = OverlapStatistics(self._decay, self._bin, self._scope_bins)
            self._scopes[scope] = statistics
            responsibility = statistics.observe(overlap, earlier_length, responsibility)
        while len(self._scopes) > self._maximum_scopes:
            del self._scopes[next(iter(self._scopes))]

    def forecast(self, scopes: Sequence[int], length: int) -> SparseWeights:
        """Return the probability of each depth at which a next prompt leaves a path.

        Parameters
        ----------
        scopes
            Ids of the subtrees that hold the path, the narrowest first. Unknown ones are
            passed over.
        length
            Length of the path in tokens, >= 1.

        Returns
        -------
        SparseWeights
            Depths within 1..`length` and weights that sum to 1.

        Raises
        ------
        ValueError
            If `length` is below 1.

        Notes
        -----
        Scopes are mixed by shrinkage, from the narrowest outwards: a scope takes the share
        ``n / (n + shrinkage)`` of what narrower scopes left, the whole tree
        ``n / (n + prior_size)``, and the rest is uniform over the path (at most 256 points). n
        is the scope's effective sample size times the part of its mass that falls on a path of
        this length: evidence that does not apply here does not outweigh a parent. What falls
        off the path is left out and the rest scaled up.

        A bin that is less than a token wide stands at its mean. Another one, of mean m and
        standard deviation s, stands at ``m - s sqrt(3)``, m and ``m + s sqrt(3)`` with 1/6, 2/3
        and 1/6 of its weight (the Gauss-Hermite rule, exact for both moments): at its mean alone,
        a state there would seem to serve the whole bin. O(b log b) time for b bins in all.
        """
        check_count("length", length, 1, "pass the length of the path")
        parts: list[Bins] = []
        left = 1.0
        known = [self._scopes[scope] for scope in scopes if scope in self._scopes]
        sources = [(statistics, self._shrinkage) for statistics in known]
        for statistics, rival in [*sources, (self._tree, self._prior_size)]:
            bins = statistics.on_path(length)
            mass = float(bins.masses.sum())
            if mass == 0.0:
                continue
            evidence = statistics.effective_size * min(mass / statistics.total, 1.0)
            share = evidence / (evidence + rival)
            parts.append(bins._replace(masses=bins.masses * (left * share / mass)))
            left *= 1.0 - share
        parts.append(_uniform(length, self._bin, left))
        means, variances, masses = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _merged(_spread(Bins(means, variances, masses)), length)

    def forget(self, scope: int) -> None:
        """Drop the statistics of `scope`, if it has any; the whole tree's stay as they are."""
        self._scopes.pop(scope, None)


def _uniform(length: int, bin: int, mass: float) -> Bins:
    """Return even steps along the path, of `bin` tokens where that makes few enough."""
    points = min(-(-length // bin), _PRIOR_POINTS)
    middles = np.linspace(0.5, points - 0.5, points) * (length / points)
    return Bins(middles, np.zeros(points), np.full(points, mass / points))


def _spread(bins: Bins) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the depths and weights of the points that stand for `bins`."""
    wide = (bins.variances >= 1.0).nonzero()[0]
    means, masses = bins.means.take(wide), bins.masses.take(wide) / 6.0
    sides = np.sqrt(3.0 * bins.variances.take(wide))
    middles = bins.masses.copy()
    middles[wide] = 4.0 * masses
    return (
        np.concatenate((bins.means, means - sides, means + sides)),
        np.concatenate((middles, masses, masses)),
    )


def _merged(points: tuple[NDArray[np.float64], NDArray[np.float64]], length: int) -> SparseWeights:
    """Round depths to tokens on the path, add up equal ones, and scale weights to a sum of 1."""
    depths, weights = points
    order = depths.argsort(kind="stable")
    tokens = np.minimum(np.maximum(np.rint(depths.take(order)), 1), length).astype(np.int64)
    opens = np.ones(tokens.size, dtype=np.bool_)
    np.not_equal(tokens[1:], tokens[:-1], out=opens[1:])
    firsts = opens.nonzero()[0]
    summed = np.add.reduceat(weights.take(order), firsts)
    return SparseWeights(tokens.take(firsts), summed / summed.sum())
