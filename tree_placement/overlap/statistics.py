"""Overlaps of one scope, told apart by the coordinate that explains them."""

from __future__ import annotations

import numpy as np

from tree_placement._check import check_count, invalid
from tree_placement.overlap._encoding import Decoder, Encoder
from tree_placement.overlap.histogram import Bins, OverlapHistogram, check_bin


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
        self._kernel = 1.0 / (3 * check_bin(bin))
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
        overlap = check_count("overlap", overlap, 1, "do not observe prompts that share nothing")
        earlier_length = check_count(
            "earlier_length", earlier_length, 1, "pass the earlier prompt's length"
        )
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

    def write(self, encoder: Encoder) -> None:
        """Append float64 counts (decayed, and their squares), then the start and the end."""
        encoder.reals((self._total, self._squares))
        self._start.write(encoder)
        self._end.write(encoder)

    def read(self, decoder: Decoder) -> None:
        """Take over what `write` of statistics with the same arguments appended.

        Raises ValueError where that does not fit together.
        """
        self._total, self._squares = decoder.reals(2).tolist()
        self._start.read(decoder)
        self._end.read(decoder)
