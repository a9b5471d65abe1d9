"""Checks that public functions share: one clear line for each kind of bad input."""

import operator
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

DEEPEST = 2**53
"""Depths and counts up to here are exact in float64."""


def invalid(what: str, got: object, need: str, fix: str) -> ValueError:
    """Build the ValueError ``<what>: got <value>; need <condition>; <what to do>``."""
    return ValueError(f"{what}: got {got}; need {need}; {fix}")


def check_at_least(what: str, value: float, minimum: float, fix: str) -> None:
    """Raise ValueError unless `value` is finite and at least `minimum`."""
    if not (value >= minimum and np.isfinite(value)):
        raise invalid(what, value, f"a finite number >= {minimum:g}", fix)


def check_positive(what: str, value: float, fix: str) -> None:
    """Raise ValueError unless `value` is finite and above 0."""
    if not 0.0 < value < np.inf:
        raise invalid(what, value, "a finite number > 0", fix)


def check_count(what: str, value: int, minimum: int, fix: str) -> int:
    """Return `value` as an int; ValueError unless it is a whole one from `minimum` to 2**53.

    Compute with the result: numpy's integers overflow in their own small types.
    """
    if not is_whole(value):
        raise invalid(what, repr(value), f"a whole number >= {minimum}, an int", fix)
    count = operator.index(value)
    if count < minimum:
        raise invalid(what, count, f"a whole number >= {minimum}", fix)
    if count > DEEPEST:
        raise invalid(what, count, f"at most {DEEPEST} (2**53)", fix)
    return count


def is_whole(value: object) -> bool:
    """Return whether `value` can count: an int of Python or numpy, no float and no bool."""
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not isinstance(value, bool)


def as_weights(weights: ArrayLike) -> NDArray[np.float64]:
    """Return `weights` as float64, copied only if need be; ValueError where one is bad."""
    try:
        array = np.asarray(weights)
    except ValueError:
        raise invalid(
            "weights", "rows of different sizes", "one dimension", "flatten them"
        ) from None
    if array.dtype.kind not in "biuf":
        raise invalid("weights", f"dtype {array.dtype}", "real numbers", "convert them to float")
    real = np.asarray(array, dtype=np.float64)
    check_weights(real)
    return real


def check_share(what: str, value: float, fix: str) -> None:
    """Raise ValueError unless `value` lies in (0, 1]."""
    if not 0.0 < value <= 1.0:
        raise invalid(what, value, f"0 < {what} <= 1", fix)


def check_weights(weights: NDArray[np.float64]) -> None:
    """Raise ValueError unless `weights` is one-dimensional, finite and not negative."""
    if weights.ndim != 1:
        raise invalid("weights", f"shape {weights.shape}", "one dimension", "pass a flat array")
    if weights.size and not (weights.min() >= 0.0 and weights.max() < np.inf):
        bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))
        raise invalid(
            f"weights[{bad[0]}]",
            weights[bad[0]],
            "a finite number >= 0",
            "drop or repair this weight",
        )


def too_deep(what: str, depth: int) -> ValueError:
    """Build the error of a depth that float64 may not hold."""
    return invalid(what, depth, f"at most {DEEPEST} tokens (2**53)", "count in larger units")


def as_depths(what: str, depths: Iterable[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `depths` as a flat int64 array; ValueError where one is not a whole number."""
    array = np.asarray(depths if isinstance(depths, np.ndarray) else list(depths))
    if array.ndim != 1:
        raise invalid(what, f"shape {array.shape}", "one dimension", "pass a flat sequence")
    if array.size and array.dtype.kind not in "iu":
        raise invalid(what, f"dtype {array.dtype}", "whole numbers of tokens", "round the depths")
    if array.size and array.max() > DEEPEST:
        raise too_deep(what, int(array.max()))
    return array.astype(np.int64)


def sorted_depths(
    what: str, depths: Iterable[int] | NDArray[np.int64], length: int | None
) -> NDArray[np.int64]:
    """Return `depths` sorted, each once; ValueError outside 1..`length` (None: no upper end)."""
    array = np.unique(as_depths(what, depths))
    outside = array[array < 1] if length is None else array[(array < 1) | (array > length)]
    if outside.size:
        need = "depth >= 1" if length is None else f"1 <= depth <= {length}"
        raise invalid(what, outside[0], need, "leave out depths that are not on the path")
    return array
