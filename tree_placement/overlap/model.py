"""Statistics of overlap: where new prompts leave earlier ones, and where they will next.

Prompts leave at a depth from the start (a shared system prompt ends) or at a distance from the
end of the earlier prompt (a document is asked about again). Pooled over paths of many lengths,
either kind is sharp in its own coordinate and smeared in the other, so both are kept, and each
observation is shared between them by how well each explains it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import check_count, check_positive, invalid
from tree_placement.cost import SparseWeights
from tree_placement.overlap._encoding import Decoder, Encoder
from tree_placement.overlap.histogram import Bins, check_bin
from tree_placement.overlap.statistics import OverlapStatistics

__all__ = ["OverlapModel", "OverlapStatistics"]

_PRIOR_POINTS = 256
_KIND, _VERSION = b"TPOM", 1


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

    Notes
    -----
    Deterministic: the same observations in the same order give the same bits in every process,
    also where the model was saved and read again in between (`to_bytes`, `from_bytes`). Memory is
    O(maximum_bins + maximum_scopes * scope_bins), however many paths were observed.

    Examples
    --------
    >>> model = OverlapModel()
    >>> for length in (5_000, 8_000, 6_000):
    ...     model.observe([7], overlap=1_500, earlier_length=length)
    >>> forecast = model.forecast([7], length=9_000)
    >>> int(forecast.depths[forecast.weights.argmax()])
    1500

    Saved and read again, it goes on as if nothing had happened:

    >>> copy = OverlapModel.from_bytes(model.to_bytes())
    >>> for each in (model, copy):
    ...     each.observe([7, 2], overlap=1_600, earlier_length=4_000)
    >>> copy.to_bytes() == model.to_bytes()
    True
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
        check_positive("shrinkage", shrinkage, "pass the evidence that outweighs a parent scope")
        check_positive("prior_size", prior_size, "pass the evidence that outweighs the prior")
        self._decay = decay
        self._bin = check_bin(bin)
        self._maximum_scopes = check_count(
            "maximum_scopes", maximum_scopes, 1, "pass the number of scopes to remember"
        )
        self._maximum_bins = maximum_bins
        self._scope_bins = check_count(
            "scope_bins", scope_bins, 1, "pass the number of bins to keep in a scope"
        )
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
                statistics = self._new_scope()
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
        length = check_count("length", length, 1, "pass the length of the path")
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

    def to_bytes(self) -> bytes:
        """Return everything the model knows, its settings included.

        Returns
        -------
        bytes
            ``TPOM``, uint32 version (1), uint32 CRC-32 of the rest; then 8 bytes a number, int64
            or float64: int64 bin, maximum_scopes, maximum_bins, scope_bins; float64 decay,
            shrinkage, prior_size; the whole tree's statistics; int64 number of scopes and their
            ids, the one observed longest ago first; their statistics in that order. Statistics
            are two float64 counts and two histograms (`OverlapHistogram.write`). All of it
            little-endian. The same observations in the same order give the same bytes.

        Raises
        ------
        ValueError
            If the id of a scope does not fit 64 bits.

        Notes
        -----
        O(bins kept) time and memory, at most 40 bytes a bin.
        """
        encoder = Encoder()
        encoder.integers((self._bin, self._maximum_scopes, self._maximum_bins, self._scope_bins))
        encoder.reals((self._decay, self._shrinkage, self._prior_size))
        self._tree.write(encoder)
        for scope in self._scopes:
            if not -(2**63) <= scope < 2**63:
                raise invalid("scope", scope, "a whole number of 64 bits", "number the scopes")
        encoder.integers((len(self._scopes), *self._scopes))
        for statistics in self._scopes.values():
            statistics.write(encoder)
        return encoder.sealed(_KIND, _VERSION)

    @classmethod
    def from_bytes(cls, data: bytes) -> OverlapModel:
        """Return the model that `to_bytes` was called on; from here on both learn the same bits.

        Raises
        ------
        ValueError
            If `data` is of another kind or version, or damaged: it does not have its checksum, or
            ends too early or too late.
        """
        decoder = Decoder(data, _KIND, _VERSION)
        bin, maximum_scopes, maximum_bins, scope_bins = decoder.integers(4).tolist()
        decay, shrinkage, prior_size = decoder.reals(3).tolist()
        model = cls(
            decay,
            bin,
            maximum_scopes,
            maximum_bins=maximum_bins,
            scope_bins=scope_bins,
            shrinkage=shrinkage,
            prior_size=prior_size,
        )
        model._tree.read(decoder)
        for scope in decoder.integers(decoder.integers(1).item()).tolist():
            model._scopes[scope] = model._new_scope()
        for statistics in model._scopes.values():
            statistics.read(decoder)
        decoder.finish()
        return model

    def _new_scope(self) -> OverlapStatistics:
        return OverlapStatistics(self._decay, self._bin, self._scope_bins)


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
