"""The setting of the sparse-prefix-caching paper: entries of prompts, each with its own states.

Its cache holds one entry a request, first in, first out; entries share nothing, each has states at
all depths placed for its prompt. A request resumes from the oldest of the entries that match it
best (Shirokikh and Nikolenko, arXiv 2605.05219). The logs tell how far each request matched the
cache, not which entry: here those of its own conversation match it so far, as far as they reach.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tree_placement._check import check_count, invalid
from tree_placement.overlap import OverlapModel
from tree_placement.path import block, place
from tree_placement.replay.policies.learned import BIN, INTERVAL, DecayedHistogram

COLUMNS = ("conversation", "prompt_tokens", "matched_tokens")
WARM_UP_FACTOR = 1.5
"""Requests of the warm-up, which were not logged, for each logged one: 60 % against 40 %."""


class LoggedRequest(NamedTuple):
    """A prompt of `length` tokens, of which the cache held the first `matched`."""

    conversation: str
    length: int
    matched: int


class PaperResult(NamedTuple):
    """Part of the tokens of the requests that were counted, and the mean number of states."""

    share_of_tokens: float
    states_per_request: float


EntryPlacement: TypeAlias = Callable[[LoggedRequest], Sequence[int]]
"""Where an entry has its states, called once a request, in order."""


def read_paper_log(path: Path) -> tuple[LoggedRequest, ...]:
    """Return the requests in a gzipped CSV file with the columns `COLUMNS`.

    Raises
    ------
    ValueError
        If the file cannot be read or holds something else.
    """
    try:
        with gzip.open(path, "rt", newline="") as lines:
            rows = list(csv.reader(lines))
    except OSError as error:
        got = error.strerror or error
        raise invalid(str(path), got, "a file that can be read", "correct the path") from None
    if not rows or tuple(rows[0]) != COLUMNS:
        got = ",".join(rows[0]) if rows else "nothing"
        raise invalid(str(path), got, f"the columns {','.join(COLUMNS)}", "pass another file")
    return tuple(
        LoggedRequest(name, int(length), int(matched)) for name, length, matched in rows[1:]
    )


def replay_entries(
    log: Sequence[LoggedRequest], entries: int, placement: EntryPlacement
) -> PaperResult:
    """Serve a log from a cache of `entries` entries.

    The first `entries` requests fill the cache and are not counted: what it held when the log
    begins is not known.

    Examples
    --------
    >>> log = [LoggedRequest("a", 1_000, 0), LoggedRequest("a", 1_000, 900)]
    >>> replay_entries(log, 1, lambda request: [400, 800])
    PaperResult(share_of_tokens=0.8, states_per_request=2.0)
    """
    entries = check_count("entries", entries, 1, "pass the number of prompts there is room for")
    cache: deque[tuple[LoggedRequest, Sequence[int]]] = deque(maxlen=entries)
    hit = tokens = states = 0
    for number, request in enumerate(log):
        depths = placement(request)
        if number >= entries:
            hit += _hit(request, cache)
            tokens += request.length
        cache.append((request, depths))
        states += len(depths)
    return PaperResult(hit / tokens if tokens else 0.0, states / len(log) if log else 0.0)


def entry_placement(name: str, log: Sequence[LoggedRequest]) -> EntryPlacement:
    """Return the placement `block_B`, `balanced_M`, `dp_M`, `forecast_M` or `tail_D`.

    B and D are tokens, M states a prompt.

    Raises
    ------
    ValueError
        If there is no such placement.

    Examples
    --------
    >>> entry_placement("balanced_2", [])(LoggedRequest("a", 1_000, 0))
    [320, 640]
    """
    found = re.fullmatch(r"(block|balanced|dp|forecast|tail)_([1-9]\d{0,8})", name)
    if found is None:
        need = "block_B, balanced_M, dp_M, forecast_M or tail_D"
        raise invalid("placement", name, need, "correct the name")
    family, number = found[1], int(found[2])
    if family == "block":
        return lambda request: list(map(int, block(request.length, number)))
    if family == "balanced":
        return lambda request: _evenly_spaced(request.length, number)
    if family == "tail":
        return lambda request: _on_grid([request.length - number])
    if family == "forecast":
        return ForecastPlacement(number)
    return PaperPlacement(number, log)


class PaperPlacement:
    """The paper's dynamic program: the same depths for all prompts, down to the end of each.

    One decayed histogram of overlaps, solved every `INTERVAL` requests.

    Parameters
    ----------
    count
        States at most, >= 1.
    warm_up
        Requests counted beforehand. The paper's logs leave out a warm-up, whose histogram is not
        known: the log's own requests stand in for it.
    """

    def __init__(self, count: int, warm_up: Sequence[LoggedRequest]) -> None:
        self._count = count
        self._histogram = DecayedHistogram()
        self._requests = round(WARM_UP_FACTOR * len(warm_up))
        self._depths: list[int] | None = None
        for request in warm_up:
            self._histogram.observe(request.matched, request.length)
        if warm_up:
            self._solve()

    def __call__(self, request: LoggedRequest) -> Sequence[int]:
        """Return the depths on a prompt, whose overlap is counted first."""
        self._histogram.observe(request.matched, request.length)
        self._requests += 1
        if self._requests % INTERVAL == 0:
            self._solve()
        if self._depths is None:
            return _evenly_spaced(request.length, self._count)
        return [depth for depth in self._depths if depth <= request.length]

    def _solve(self) -> None:
        from tree_placement.replay.policies._layers import chosen, last_states

        masses = self._histogram.masses()
        last = last_states(masses, self._count)
        self._depths = [BIN * state for state in reversed(chosen(last, masses.size - 1))]


class ForecastPlacement:
    """The optimum for this project's forecast, which begins without any knowledge.

    Its statistics are kept for each conversation, from both ends of the prompt, and backed off to
    those of all (`OverlapModel`).

    Parameters
    ----------
    count
        States at most, >= 1.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._model = OverlapModel()
        self._lengths: dict[str, int] = {}
        self._scopes: dict[str, int] = {}

    def __call__(self, request: LoggedRequest) -> Sequence[int]:
        """Return the depths on a prompt, whose overlap is counted first."""
        scope = self._scopes.setdefault(request.conversation, len(self._scopes))
        earlier_length = self._lengths.get(request.conversation, request.length)
        if request.matched:
            self._model.observe([scope], request.matched, max(earlier_length, request.matched))
        self._lengths[request.conversation] = request.length
        forecast = self._model.forecast([scope], request.length)
        return list(map(int, place(forecast, self._count, grid=BIN).depths))


def _hit(request: LoggedRequest, cache: Sequence[tuple[LoggedRequest, Sequence[int]]]) -> int:
    """Return the deepest state, within the match, of the oldest entry that matches best."""
    if request.matched == 0:
        return 0
    own = [each for each in cache if each[0].conversation == request.conversation] or cache
    _, depths = max(own, key=lambda each: min(each[0].length, request.matched))
    return max((depth for depth in depths if depth <= request.matched), default=0)


def _evenly_spaced(length: int, count: int) -> list[int]:
    return _on_grid([length // (count + 1) * index for index in range(1, count + 1)])


def _on_grid(depths: Sequence[int]) -> list[int]:
    """Floor depths to the bins, without the root and repetitions, rising."""
    return sorted({depth // BIN * BIN for depth in depths if depth >= BIN})
