"""Where to keep states on one path without knowing its overlaps: block, square root, logarithmic.

These are what a placement that knows the overlaps is compared with, beside `balanced` of
`tree_placement.path`. Each chooses its own number of states, which depends on the path's length.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import check_count


def block(length: int, size: int, *, grid: int = 1) -> NDArray[np.int64]:
    """Return the depths of states at every multiple of `size` tokens.

    Parameters
    ----------
    length
        Length of the path in tokens, >= 0.
    size
        Tokens between two states, >= 1.
    grid
        Each depth is rounded down to a multiple of this many tokens, >= 1; those that fall
        together, or on the root, are left out.

    Returns
    -------
    ndarray
        Depths in tokens, strictly rising, int64.

    Raises
    ------
    ValueError
        If `length` is below 0, or `size` or `grid` below 1.

    Notes
    -----
    ``floor(length / size)`` states, none of whose overlaps recomputes more than ``size - 1``
    tokens, on a grid that divides `size`. O(states) time. Servers keep states so at the ends of
    their cache's blocks.

    Examples
    --------
    >>> block(1_000, 256)
    array([256, 512, 768])
    >>> block(1_000, 300, grid=64)
    array([256, 576, 896])
    """
    length = check_count("length", length, 0, "pass the depth of the deepest overlap")
    size = check_count("size", size, 1, "pass the distance between states in tokens")
    return _on_grid(np.arange(size, length + 1, size, dtype=np.int64), grid)


def square_root(length: int, *, grid: int = 1) -> NDArray[np.int64]:
    """Return the depths of states at every multiple of ``floor(sqrt(length))`` tokens.

    Parameters
    ----------
    length
        Length of the path in tokens, >= 0.
    grid
        As for `block`.

    Returns
    -------
    ndarray
        Depths in tokens, strictly rising, int64.

    Raises
    ------
    ValueError
        If `length` is below 0, or `grid` below 1.

    Notes
    -----
    With s the root rounded down, between s and s + 2 states on a grid of 1, none of whose
    overlaps recomputes more than s - 1 tokens: as many states as tokens to recompute, which
    minimises their sum. The rule is that of Chen, Xu, Zhang and Guestrin, "Training deep nets
    with sublinear memory cost" (arXiv 1604.06174), for activations. O(states) time.

    Examples
    --------
    >>> square_root(30)
    array([ 5, 10, 15, 20, 25, 30])
    """
    length = check_count("length", length, 0, "pass the depth of the deepest overlap")
    return block(length, max(math.isqrt(length), 1), grid=grid)


def logarithmic(length: int, first: int = 1, *, grid: int = 1) -> NDArray[np.int64]:
    """Return the depths of states at `first` tokens and at every doubling of it.

    Parameters
    ----------
    length
        Length of the path in tokens, >= 0.
    first
        Depth of the first state in tokens, >= 1.
    grid
        As for `block`.

    Returns
    -------
    ndarray
        Depths in tokens, strictly rising, int64.

    Raises
    ------
    ValueError
        If `length` is below 0, or `first` or `grid` below 1.

    Notes
    -----
    ``1 + floor(log2(length / first))`` states, where the path reaches the first. An overlap of t
    tokens, at least `first`, recomputes less than t / 2 of them, on a grid that divides `first`:
    the cost is bounded relative to each overlap, not in tokens. O(states) time.

    Examples
    --------
    >>> logarithmic(1_000, 64)
    array([ 64, 128, 256, 512])
    """
    length = check_count("length", length, 0, "pass the depth of the deepest overlap")
    first = check_count("first", first, 1, "pass the depth of the first state in tokens")
    doublings = (length // first).bit_length()
    return _on_grid(first << np.arange(doublings, dtype=np.int64), grid)


def _on_grid(depths: NDArray[np.int64], grid: int) -> NDArray[np.int64]:
    """Round `depths` down to the grid and leave out the root and repetitions."""
    grid = check_count("grid", grid, 1, "pass the distance between depths allowed")
    rounded = np.unique(depths // grid * grid)
    return rounded[rounded > 0]
