"""What is known of each state, one column a quantity, as compiled loops take it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class StateKind(IntEnum):
    """Why a prompt has a state where it has one."""

    END = 0
    TAIL = 1
    JUNCTION = 2
    FORECAST = 3
    UNPLANNED = 4


class Columns(NamedTuple):
    """One row a known state; times count prompts.

    `written`, `passed` and `used` are when a prompt last wrote, passed and would have resumed from
    it, `interval` the time between its last two uses, `uses` how many there were and `skips` how
    many prompts passed it since without using it. `origin` ``[rows, 6]`` describes the prompt that
    planned it. `model` is its namespace's row of weights, `nearest` the row of the live state that
    serves in its place: itself where it lives, -1 where none does. `gap` is in tokens, of live
    states; `prior` is the logarithm of the share of a path's overlaps that a forecast saw there.
    `scale` over the age and `FIRST_AGE`, and `steady`, the shares of the two hazards in them,
    add up to the hazard. `state` is the id of a live state.
    """

    written: Reals
    passed: Reals
    used: Reals
    interval: Reals
    gap: Reals
    prior: Reals
    scale: Reals
    steady: Reals
    uses: Integers
    skips: Integers
    kind: Integers
    model: Integers
    nearest: Integers
    state: Integers
    origin: Integers
    known: Flags
    live: Flags


def no_columns(origin_fields: int) -> Columns:
    """Return columns without a row."""
    real, integer, flag = np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
    return Columns(
        written=real,
        passed=real,
        used=real,
        interval=real,
        gap=real,
        prior=real,
        scale=real,
        steady=real,
        uses=integer,
        skips=integer,
        kind=integer,
        model=integer,
        nearest=integer,
        state=integer,
        origin=np.zeros((0, origin_fields), dtype=np.int64),
        known=flag,
        live=flag,
    )


def lengthened(columns: Columns, rows: int) -> Columns:
    """Return columns of `rows` rows, zero in the new ones.

    Examples
    --------
    >>> columns = lengthened(no_columns(origin_fields=6), rows=3)
    >>> columns.origin.shape, columns.known.tolist()
    ((3, 6), [False, False, False])
    """
    return Columns._make(
        np.concatenate((column, np.zeros((rows - len(column), *column.shape[1:]), column.dtype)))
        for column in columns
    )
