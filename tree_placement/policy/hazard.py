"""How soon, and whether at all, prompts resume from a state: learned while serving.

The *hazard* of a state is the expected number of times that the next prompt resumes from it. Two
are weighed, b being the share of the second:

    h = (1 - b) p exp(w_1 + ... + w_F) / (age + FIRST_AGE) + b (uses + 1/2) / (life + 1 / (2 m)).

The first ages. It is a proportional hazard (Cox, "Regression Models and Life-Tables", 1972) over a
Pareto-like base, age in prompts since one last passed the state. Each family of factors reads one
or two quantities, cut into few steps, and adds the weight of the step that it finds. Weights begin
where a state is worth its gap over its age, times its uses over its passes by the rule of
succession, (uses + 1) / (passes since + 1). They follow the gradient of the Poisson likelihood of
what happened (uses less expected uses), by steps that shrink as evidence grows (Duchi, Hazan,
Singer, "Adaptive Subgradient Methods", JMLR 2011).

p is what a forecast saw of a path's overlaps at the state, to the power of 1 / (1 + uses), and 1
for states that need no forecast.

The second is steady: the mean rate of a state's uses over its life, given a Gamma prior of the mean
rate m: that of its kind, times what a forecast saw there. The share b is the probability that it is
the right one of the two, by how well each foresaw the uses of the states of the same kind with as
many uses, and bounded so that traffic may change (Raftery, Karny, Ettler, "Online Prediction under
Model Uncertainty via Dynamic Model Averaging", Technometrics 2010).

States that do not live are watched too, else only what is kept would be seen to return.
"""

from __future__ import annotations

from functools import cache
from math import log, log2
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tree_placement.overlap._encoding import Decoder, Encoder
from tree_placement.policy.columns import Columns, Integers, Reals, StateKind

if TYPE_CHECKING:
    from types import ModuleType

BATCH = 8
"""Prompts between two updates of the weights."""

NO_STATE = len(StateKind)
"""Stands for the kind of the state that served a prompt where none did."""

_NEVER = 15


class Origin(NamedTuple):
    """What is known of a prompt when it is planned, in steps that the hazard's families read.

    `turn_and_length`: how many prompts built its path, and how long it is; `matched`: the share of
    it that the tree held; `added`: how many tokens the tree did not hold; `return_time`: prompts
    since the deepest state on its path was last passed; `served_by`: that state's kind, and the
    turn; `length`: its length, finer.
    """

    turn_and_length: int
    matched: int
    added: int
    return_time: int
    served_by: int
    length: int


UNKNOWN_ORIGIN = Origin(0, 0, 0, _NEVER, NO_STATE * 8, 0)


class NewState(NamedTuple):
    """What is known of a state when it is planned: its kind, the prompt it is of, and the model,
    the row of its namespace's weights, which is its own for an `era` (see `Namespace`). `share` is
    the part of a path's overlaps, above 0, that a forecast saw there; 1 for a state that needs no
    forecast."""

    kind: StateKind
    share: float
    origin: Origin
    model: int
    era: int = 0


def describe(
    *, turn: int, length: int, overlap: int, return_time: float | None, served_by: int
) -> Origin:
    """Return the origin of a prompt.

    Parameters
    ----------
    turn
        Prompts that built its matched path, >= 0.
    length, overlap
        Tokens of the prompt, >= 1, and how many of them the tree held.
    return_time
        Prompts since the deepest state on its path was last passed; None without one.
    served_by
        Kind of that state; `NO_STATE` without one.

    Examples
    --------
    >>> describe(turn=2, length=1000, overlap=500, return_time=7.0, served_by=StateKind.END)
    Origin(turn_and_length=41, matched=7, added=8, return_time=3, served_by=2, length=19)
    """
    turn = min(turn, 7)
    size = log2(length)
    return Origin(
        turn_and_length=turn * 16 + min(int(size), 15),
        matched=int(15.99 * overlap / length),
        added=min(int(log2(length - overlap + 1)), 17),
        return_time=_NEVER if return_time is None else min(int(log2(return_time + 1.0)), 12),
        served_by=served_by * 8 + turn,
        length=min(int(2.0 * size), 40),
    )


class HazardModel:
    """The weights of each namespace, learned from what its prompts resumed from.

    Memory is three float64 a weight and namespace, and one a record (about 75 KB together).
    Deterministic: the same calls in the same order give the same bits.
    """

    def __init__(self) -> None:
        self._weights: Reals = np.zeros((0, 0))
        self._evidence: Reals = np.zeros((0, 0))
        self._gradient: Reals = np.zeros((0, 0))
        self._records: Reals = np.zeros((0, 0))

    def begin(self, model: int) -> None:
        """Begin the statistics of a namespace anew; `model` is its row."""
        kernels = self._kernels()
        if model >= len(self._weights):
            rows = max(model + 1, 2 * len(self._weights))
            self._weights = _with_rows(self._weights, rows, kernels.WEIGHTS)
            self._evidence = _with_rows(self._evidence, rows, kernels.WEIGHTS)
            self._gradient = _with_rows(self._gradient, rows, kernels.WEIGHTS)
            self._records = _with_rows(self._records, rows, kernels.RECORDS)
        self._weights[model] = kernels.first_weights()
        self._evidence[model], self._gradient[model], self._records[model] = 1.0, 0.0, 0.0

    def observe(self, columns: Columns, now: float, used: int | None) -> None:
        """Learn from one prompt, `now`, that would have resumed from row `used` (None: from none).

        O(1) time, and O(known states) each `BATCH` prompts.
        """
        kernels = self._kernels()
        if used is not None:
            kernels.count_use(columns, used, now, self._weights, self._gradient, self._records)
        if now % BATCH == 0:
            kernels.count_expected(
                columns, now, float(BATCH), self._weights, self._gradient, self._records
            )
            kernels.update(self._weights, self._evidence, self._gradient, self._records)
            self.scale(columns, np.flatnonzero(columns.known), now)

    def scale(self, columns: Columns, rows: Integers, now: float) -> None:
        """Note what is known of some states, for `rates`; of the others what was known at the last
        `BATCH` prompts stands, but for their age."""
        self._kernels().scale(columns, rows, now, self._weights, self._records)

    def rates(self, columns: Columns, now: float, rates: Reals, served: Reals) -> None:
        """Write the hazard of each known state to its place in `rates`, and of each live one the
        sum of those that it serves, its own and of states below it that do not live and have no
        nearer one, to its place in `served`. O(known states) time."""
        self._kernels().hazards(
            columns.known,
            columns.passed,
            columns.scale,
            columns.steady,
            columns.nearest,
            now,
            rates,
            served,
        )

    def rate_of_new(self, new: NewState) -> float:
        """Return the hazard of a state when it has just been written. O(1) time."""
        origin: Integers = np.array(new.origin, dtype=np.int64)
        rate = self._kernels().hazard_of_new(
            int(new.kind),
            log(new.share),
            origin,
            self._weights[new.model],
            self._records[new.model],
        )
        return float(rate)

    def least(self, columns: Columns, served: Reals) -> int:
        """Return the row of the live state of least value, its gap times what it serves, of equal
        ones that with the lowest id; -1 where none lives. O(known states) time."""
        return int(self._kernels().least(columns.live, columns.state, columns.gap, served))

    def write(self, encoder: Encoder, model: int) -> None:
        """Append what is known of a namespace: int64 number of its weights and of its records;
        float64 weights, their evidence, the gradient since the last update, and records."""
        encoder.integers((self._weights.shape[1], self._records.shape[1]))
        for values in (self._weights, self._evidence, self._gradient, self._records):
            encoder.reals(values[model])

    def read(self, decoder: Decoder, model: int) -> None:
        """Begin a namespace with what `write` appended.

        Raises ValueError where that is of other weights, or of numbers that cannot be learned.
        """
        self.begin(model)
        size, size_of_records = decoder.integers(2).tolist()
        if (size, size_of_records) != (self._weights.shape[1], self._records.shape[1]):
            raise decoder.damaged(f"{size} weights and {size_of_records} records")
        weights, evidence, gradient = decoder.reals(3 * size).reshape(3, size)
        is_finite = bool(np.isfinite(weights + gradient + evidence).all())
        if not (is_finite and (evidence >= 1.0).all()):
            raise decoder.damaged("weights that are not finite, or without evidence")
        records = decoder.reals(size_of_records)
        if not self._kernels().are_records(records):
            raise decoder.damaged("records that are not finite, or of less than no uses")
        self._weights[model], self._evidence[model] = weights, evidence
        self._gradient[model], self._records[model] = gradient, records

    @staticmethod
    @cache
    def _kernels() -> ModuleType:
        # At first use, since compiling is slow to import.
        from tree_placement.policy import _hazard_kernels

        return _hazard_kernels


def _with_rows(values: Reals, rows: int, columns: int) -> Reals:
    """Return a table of `rows` rows that begins with those of `values`."""
    table = np.zeros((rows, columns))
    table[: len(values)] = values.reshape(len(values), columns)
    return table
