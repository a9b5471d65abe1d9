"""Marconi: states at ends and junctions, evicted by recency and by what they save for their size.

Pan, Wang, Jia, Karakus, Zancato, Dao, Wang and Netravali, "Marconi: Prefix Caching for the Era of
Hybrid LLMs" (arXiv 2411.19379).
"""

from __future__ import annotations

from tree_placement.replay.policies.placements import end, junction, union
from tree_placement.replay.policies.rules import Eviction, RulePolicy
from tree_placement.replay.simulator import Arrival, Budget, Cache, ReplayPolicy
from tree_placement.replay.states import State

ALPHAS = (0.0, 0.25, 0.5, 1.0, 2.0)
WINDOW_FACTOR = 4
LONGEST_WINDOW = 1_000

_ADMITTED = union(end, junction)


class Marconi(ReplayPolicy):
    """Evicts the least of recency + alpha times efficiency, with an alpha that it tunes itself.

    Efficiency is the compute that a state saves for its memory: with states of one size the gap,
    scaled to [0, 1] over the live states. Recency is 1 / age. Until the first eviction nothing has
    to be chosen, and then alpha is 0 for a window of `WINDOW_FACTOR` times as many requests as came
    before, `LONGEST_WINDOW` at most, over which each of `ALPHAS` is tried beside the cache; the one
    that has saved most tokens at its end is kept.

    Parameters
    ----------
    budget
        What it will be replayed under.

    Examples
    --------
    >>> from tree_placement.replay import replay, trace_of_prompts
    >>> prompts = [[*range(400), *range(first, first + 90)] for first in range(1_000, 3_000, 100)]
    >>> budget = Budget(slots=2)
    >>> served = replay(trace_of_prompts(prompts, 10), Marconi(budget), budget)
    >>> [each.hit for each in served[:4]]
    [0, 0, 384, 384]
    """

    def __init__(self, budget: Budget) -> None:
        self._trials = [_Trial(alpha, budget) for alpha in ALPHAS]
        self._rule = self._trials[0].rule
        self._window_ends: int | None = None

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Write the states of a request, and try each alpha on it within the window."""
        self._rule.serve(arrival, cache)
        for trial in self._trials:
            trial.serve(arrival, cache)
        if self._window_ends is None and self._trials and self._trials[0].has_evicted:
            seen = arrival.number + 1
            self._window_ends = seen + min(WINDOW_FACTOR * seen, LONGEST_WINDOW)
        if self._window_ends is not None and arrival.number + 1 >= self._window_ends:
            if self._trials:
                self._rule = max(self._trials, key=lambda trial: trial.saved).rule
            self._trials = []

    def forget(self, state: State) -> None:
        """Take note that a state goes."""


class _Trial:
    """A cache of the same size, without KV of its own, that evicts by one alpha."""

    def __init__(self, alpha: float, budget: Budget) -> None:
        self.rule = RulePolicy(_ADMITTED, least_recent_and_efficient(alpha))
        self.saved = 0
        self.has_evicted = False
        self._cache = Cache(budget, self.rule)

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Serve a request from the trial's own states."""
        live = self._cache.live
        path = tuple(live.path(arrival.match, arrival.overlap))
        start = path[0].depth if path else 0
        if path:
            live.use(path[0], arrival.number)
        self.saved += start
        own = arrival._replace(start=start, path=path)
        self._cache.begin(own, cache.segments)
        self.rule.serve(own, self._cache)
        _, evicted = self._cache.end()
        self.has_evicted |= bool(evicted)


def least_recent_and_efficient(alpha: float) -> Eviction:
    """Return the rule by which the least of recency + `alpha` times efficiency goes.

    What the request itself has just written stays, where there is anything else. O(n) time for n
    live states.
    """

    def victim(arrival: Arrival, cache: Cache) -> State:
        earlier = [state for state in cache.live if state.writer != arrival.number]
        candidates = earlier or list(cache.live)
        gaps = [state.gap for state in candidates]
        least, spread = min(gaps), max(max(gaps) - min(gaps), 1)

        def score(state: State) -> float:
            recency = 1.0 / (arrival.number - state.used + 1)
            return recency + alpha * (state.gap - least) / spread

        return min(candidates, key=score)

    return victim
