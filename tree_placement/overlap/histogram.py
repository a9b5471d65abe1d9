"""A decayed histogram of bounded size."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import check_at_least, check_count, check_share
from tree_placement.overlap._encoding import Decoder, Encoder

_RESCALE_ABOVE = 1e100
_NEGLIGIBLE = 1e-6
_MASS, _OFFSET, _OFFSET_SQUARE, _WEIGHT_SQUARE = range(4)


class Bins(NamedTuple):
    """What is known of each bin, in no order: float64 arrays of one shape (n,).

    Parameters
    ----------
    means
        Weighted mean of the observations in the bin, in tokens.
    variances
        Their weighted variance, in tokens squared.
    masses
        Their decayed weight.
    """

    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    masses: NDArray[np.float64]


def check_bin(bin: int) -> int:
    """Return the width of a bin in tokens as an int; ValueError below 1."""
    return check_count("bin", bin, 1, "pass the width of a bin in tokens")


class OverlapHistogram:
    """Exponentially decayed histogram over tokens, which keeps mean and variance inside each bin.

    Parameters
    ----------
    decay
        Factor on the weight of all earlier observations at each new one, in (0, 1].
    bin
        Width of a bin in tokens, >= 1.
    maximum_bins
        Bins kept, >= 1; the lightest is dropped when there is one more.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    Decay touches no bin: new weights are scaled up instead, and all are scaled back before they
    overflow. Memory is O(bins kept).

    Examples
    --------
    >>> histogram = OverlapHistogram(decay=0.5)
    >>> histogram.observe(100)
    >>> histogram.observe(104)
    >>> histogram.bins()
    Bins(means=array([102.66666667]), variances=array([3.55555556]), masses=array([1.5]))
    """

    def __init__(self, decay: float = 0.99, bin: int = 64, maximum_bins: int = 4096) -> None:
        check_share("decay", decay, "pass 1 to forget nothing")
        bin = check_bin(bin)
        maximum_bins = check_count(
            "maximum_bins", maximum_bins, 1, "pass the number of bins to keep"
        )
        self._growth = 1.0 / decay
        self._bin = bin
        self._maximum_bins = maximum_bins
        self._scale = 1.0
        self._mass_sum = 0.0
        self._squares_sum = 0.0
        self._rows: dict[int, int] = {}
        self._allocate(min(8, maximum_bins))

    def _allocate(self, rows: int) -> None:
        self._numbers = np.zeros(rows, dtype=np.int64)
        self._sums = np.zeros((4, rows))

    def __len__(self) -> int:
        """Return the number of bins kept."""
        return len(self._rows)

    @property
    def total(self) -> float:
        """Decayed weight of the observations in the bins kept."""
        return self._mass_sum / self._scale

    @property
    def effective_size(self) -> float:
        """(sum w)^2 / sum w^2 over the decayed observations in the bins kept; 0.0 if none."""
        return self._mass_sum**2 / self._squares_sum if self._squares_sum else 0.0

    def observe(self, tokens: int, weight: float = 1.0) -> None:
        """Decay all bins once, then add `weight` (>= 0) at `tokens` (>= 0).

        Raises ValueError if either is negative or not finite. O(1) time; O(bins) when full or
        when scaling back.
        """
        tokens = check_count("tokens", tokens, 0, "pass a depth or a distance")
        check_at_least("weight", weight, 0.0, "pass the share to count")
        self._scale *= self._growth
        if self._scale > _RESCALE_ABOVE:
            self._rescale()
        scaled = weight * self._scale
        if scaled == 0.0:
            return
        number, offset = divmod(tokens, self._bin)
        row = self._row(number, scaled)
        if row is None:
            return
        square = scaled * scaled
        self._sums[:, row] += (scaled, scaled * offset, scaled * offset * offset, square)
        self._mass_sum += scaled
        self._squares_sum += square

    def mass_near(self, tokens: int) -> float:
        """Return the decayed weight in the bin of `tokens` and its two neighbours. O(1) time."""
        number = tokens // self._bin
        mass = 0.0
        for neighbour in (number - 1, number, number + 1):
            row = self._rows.get(neighbour)
            if row is not None:
                mass += self._sums.item(_MASS, row)
        return mass / self._scale

    def bins(self) -> Bins:
        """Return all bins but those of less than a millionth of the total. O(bins) time."""
        masses = self._sums[_MASS, : len(self._rows)]
        kept = (masses > _NEGLIGIBLE * self._mass_sum).nonzero()[0]
        sums = self._sums.take(kept, axis=1)
        offsets = sums[_OFFSET] / sums[_MASS]
        variances = np.maximum(sums[_OFFSET_SQUARE] / sums[_MASS] - offsets * offsets, 0.0)
        means = self._numbers.take(kept) * self._bin + offsets
        return Bins(means, variances, sums[_MASS] / self._scale)

    def write(self, encoder: Encoder) -> None:
        """Append everything but the constructor's arguments.

        int64 bins kept and allocated; float64 scale, mass and squared weights; int64 numbers of
        the bins; float64 their masses, offsets, squared offsets and squared weights.
        """
        kept = len(self._rows)
        encoder.integers((kept, self._numbers.size))
        encoder.reals((self._scale, self._mass_sum, self._squares_sum))
        encoder.integers(self._numbers[:kept])
        encoder.reals(self._sums[:, :kept])

    def read(self, decoder: Decoder) -> None:
        """Take over what `write` of a histogram with the same arguments appended.

        Raises ValueError where that does not fit together.
        """
        kept, allocated = decoder.integers(2).tolist()
        if not 0 <= kept <= allocated <= self._maximum_bins:
            raise decoder.damaged(f"{kept} bins of {allocated}")
        self._scale, self._mass_sum, self._squares_sum = decoder.reals(3).tolist()
        numbers = decoder.integers(kept)
        self._refill(numbers, decoder.reals(4 * kept).reshape(4, kept), allocated)

    def _row(self, number: int, scaled: float) -> int | None:
        """Return the row of bin `number`, made if need be; None if it would be the lightest."""
        row = self._rows.get(number)
        if row is not None:
            return row
        row = len(self._rows)
        if row == self._maximum_bins:
            row = int(self._sums[_MASS].argmin())
            if self._sums[_MASS, row] > scaled:
                return None
            self._drop(row)
        elif row == self._numbers.size:
            self._resize(np.arange(row), min(2 * row, self._maximum_bins))
        self._rows[number] = row
        self._numbers[row] = number
        return row

    def _drop(self, row: int) -> None:
        """Empty `row`; the caller fills it again."""
        del self._rows[int(self._numbers[row])]
        self._mass_sum -= float(self._sums[_MASS, row])
        self._squares_sum -= float(self._sums[_WEIGHT_SQUARE, row])
        self._sums[:, row] = 0.0

    def _resize(self, kept: NDArray[np.int64], rows: int) -> None:
        """Move the rows `kept` to the front of new arrays of `rows` rows."""
        self._refill(self._numbers[kept], self._sums[:, kept], rows)

    def _refill(self, numbers: NDArray[np.int64], sums: NDArray[np.float64], rows: int) -> None:
        """Put these bins at the front of new arrays of `rows` rows."""
        self._allocate(rows)
        self._numbers[: numbers.size] = numbers
        self._sums[:, : numbers.size] = sums
        self._rows = {number: row for row, number in enumerate(numbers.tolist())}

    def _rescale(self) -> None:
        """Bring the scale back to 1 and drop bins that have decayed to nothing."""
        self._sums /= self._scale
        self._sums[_WEIGHT_SQUARE] /= self._scale
        self._scale = 1.0
        masses = self._sums[_MASS, : len(self._rows)]
        kept = np.flatnonzero(masses > _NEGLIGIBLE**2 * masses.sum())
        self._resize(kept, self._numbers.size)
        self._mass_sum = float(self._sums[_MASS].sum())
        self._squares_sum = float(self._sums[_WEIGHT_SQUARE].sum())
