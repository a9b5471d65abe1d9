"""What a check and a measurement found, and plain tables of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

TOLERANCE = 1e-5
"""Bound of relative errors in float32."""


@dataclass(frozen=True)
class Check:
    """One comparison with the truth, and the same comparison of something wrong.

    Attributes
    ----------
    kernel, implementation, compared : str
    error : float
        Largest relative error; for what has to be exact, the number of bytes that differ.
    bound : float
    wrong : str
        What was put in deliberately.
    wrong_error : float
        The error that it was found by.
    seconds : float
        Time of the call that was checked.
    """

    kernel: str
    implementation: str
    compared: str
    error: float
    bound: float
    wrong: str
    wrong_error: float
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether the error is within its bound; one that is no number is not."""
        return self.error <= self.bound

    @property
    def caught(self) -> bool:
        """Whether what is wrong was told from what is right."""
        return self.wrong_error > self.bound


@dataclass(frozen=True)
class Cost:
    """Time of one kernel in full shapes.

    Attributes
    ----------
    kernel, implementation : str
    tokens : int
        0 for a copy of states.
    seconds : float
        Median.
    bytes_moved : int
        What has to be read and written: inputs, outputs and states.
    share_of_bandwidth : float
        Bytes over time over the bandwidth of a plain copy on the same device.
    overheads : tuple of float
        Median time with 1, 4, 16 and 64 captures over the time without, less 1, each pair
        measured one after the other; empty for a copy.
    """

    kernel: str
    implementation: str
    tokens: int
    seconds: float
    bytes_moved: int
    share_of_bandwidth: float
    overheads: tuple[float, ...] = ()


class Table:
    """A plain table whose rows are printed as they come.

    Parameters
    ----------
    columns : sequence of (str, int)
        Heading and width of each; a negative width is aligned to the left.
    stream : text stream
    """

    def __init__(self, columns: Sequence[tuple[str, int]], stream: TextIO = sys.stdout) -> None:
        self._widths = [width for _, width in columns]
        self._stream = stream
        self.row(*(heading for heading, _ in columns))

    def row(self, *cells: str) -> None:
        """Print one row."""
        aligned = (
            cell.ljust(-width) if width < 0 else cell.rjust(width)
            for cell, width in zip(cells, self._widths, strict=True)
        )
        print("  ".join(aligned).rstrip(), file=self._stream, flush=True)
