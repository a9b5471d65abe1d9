"""The simulator: serves a trace request by request from the states that a policy keeps.

A request's overlap is as far as the tree holds its tokens, at most its length less one. It resumes
from the deepest live state there, and while the rest is computed the policy may write states at
grid depths. The simulator sees to it that no policy does what a cache could not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tree_placement._check import check_count, invalid
from tree_placement.replay.kv import KvBudget
from tree_placement.replay.states import LiveStates, State
from tree_placement.replay.trace import Request, Trace
from tree_placement.replay.tree import BlockTree, Match, Segment


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a cache has room for.

    Parameters
    ----------
    slots
        Live states at most, >= 0; None for no bound.
    grid
        States stand at multiples of this many tokens, >= 1.
    kv_tokens
        Tokens of KV at most, the longest prompt's at least; None where all KV stays.

    Raises
    ------
    ValueError
        If a number is out of its range.
    """

    slots: int | None = None
    grid: int = 64
    kv_tokens: int | None = None

    def __post_init__(self) -> None:
        grid = check_count("grid", self.grid, 1, "pass the tokens between depths of states")
        slots, kv_tokens = self.slots, self.kv_tokens
        if slots is not None:
            slots = check_count("slots", slots, 0, "pass the number of states there is room for")
        if kv_tokens is not None:
            kv_tokens = check_count("kv_tokens", kv_tokens, 1, "pass the tokens there is room for")
        for name, value in (("grid", grid), ("slots", slots), ("kv_tokens", kv_tokens)):
            object.__setattr__(self, name, value)


class Arrival(NamedTuple):
    """A request as its cache sees it: nothing of the future, and no token beyond the overlap.

    `number` counts requests from 0, `time` is in seconds. `start` is the depth it resumes from and
    `path` the live states on its matched path, the deepest first, the one it resumes from leading.
    """

    number: int
    length: int
    time: float | None
    overlap: int
    start: int
    path: tuple[State, ...]
    match: Match

    @property
    def branches(self) -> tuple[int, ...]:
        """The branches of the matched path, the narrowest first."""
        return tuple(dict.fromkeys(segment.branch for segment, _ in self.match.path()))

    @property
    def earlier_length(self) -> int:
        """The length of the prompt that added the last of the overlap; 0 without overlap."""
        return self.match.segment.prompt_length if self.match.segment is not None else 0


class ReplayPolicy(Protocol):
    """What decides which states a simulated cache keeps."""

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        """Write states of a request that is computed from `arrival.start` on, and evict others."""

    def forget(self, state: State) -> None:
        """Take note that a state goes: evicted by the policy itself, or with its KV."""

    def cut(self, path: Iterable[tuple[Segment, int]]) -> None:
        """Take note that the tree dropped the tokens below the end of a path, the states there
        being gone already; most policies have nothing to note."""
        return


class Cache:
    """The live states as a policy may change them while one request is served.

    Parameters
    ----------
    budget
        See `Budget`.
    policy
        Is told of every state that goes.

    `live` are its states, and `segments` those of the request's path, the deepest first, each with
    the depth down to which it is taken.
    """

    def __init__(self, budget: Budget, policy: ReplayPolicy) -> None:
        self.budget = budget
        self.live = LiveStates()
        self._policy = policy
        self._before: list[State] = []
        self._written: dict[State, None] = {}
        self.segments: Sequence[tuple[Segment, int]] = ()
        self._arrival = Arrival(-1, 0, None, 0, 0, (), Match(0, None))

    @property
    def is_full(self) -> bool:
        """Tell whether a state must go before another can be written."""
        return self.budget.slots is not None and len(self.live) >= self.budget.slots

    def depths(self) -> range:
        """Return the depths at which the request's states can be written, rising."""
        grid = self.budget.grid
        return range((self._arrival.start // grid + 1) * grid, self._arrival.length + 1, grid)

    def floor(self, depth: int) -> int:
        """Return the last grid depth down to `depth`."""
        return depth // self.budget.grid * self.budget.grid

    def state_at(self, depth: int) -> State | None:
        """Return the live state at `depth` of the request's path; None without one."""
        return self.live.on(self._segment_at(depth)).get(depth)

    def lives_at(self, depth: int) -> bool:
        """Tell whether the request's path has a live state at `depth`."""
        return self.state_at(depth) is not None

    def write(self, depth: int) -> State:
        """Write the request's state at `depth`.

        Raises
        ------
        ValueError
            If the depth is off the grid, not computed or taken, or no slot is free.
        """
        arrival = self._arrival
        if depth % self.budget.grid or not arrival.start < depth <= arrival.length:
            need = f"a multiple of {self.budget.grid} in ({arrival.start}, {arrival.length}]"
            raise invalid("depth of a state", depth, need, "write only what is computed")
        if self.is_full:
            raise invalid("live states", len(self.live), "a free slot", "evict one first")
        segment = self._segment_at(depth)
        if depth in self.live.on(segment):
            raise invalid("depth of a state", depth, "one without a live state", "leave it out")
        state = self.live.add(arrival.number, depth, segment)
        self._written[state] = None
        return state

    def evict(self, state: State) -> None:
        """Give up a live state."""
        self.live.remove(state)
        if state in self._written:
            del self._written[state]
        else:
            self._before.append(state)
        self._policy.forget(state)

    def _segment_at(self, depth: int) -> Segment:
        return next(segment for segment, end in self.segments if segment.begin < depth <= end)

    def begin(self, arrival: Arrival, segments: Sequence[tuple[Segment, int]]) -> None:
        """Let the policy write states of `arrival` on its path, the deepest segment first."""
        self._arrival = arrival
        self.segments = segments

    def end(self) -> tuple[tuple[State, ...], tuple[State, ...]]:
        """Return the states written since the last call, and those of before that went."""
        written, evicted = tuple(self._written), tuple(self._before)
        self._written, self._before = {}, []
        return written, evicted


class Served(NamedTuple):
    """How one request went: resumed from `source` at depth `hit`, None at 0.

    `overlap` is in tokens; `written` and `evicted` are what it changed of the live states, `live`
    how many there are after it.
    """

    length: int
    overlap: int
    hit: int
    source: State | None
    written: tuple[State, ...]
    evicted: tuple[State, ...]
    live: int


class Simulator:
    """A cache that serves requests one after another.

    Parameters
    ----------
    block
        Tokens of a block.
    budget
        See `Budget`.
    policy
        Decides which states are kept.

    Examples
    --------
    >>> from tree_placement.replay.policies.placements import everywhere
    >>> from tree_placement.replay.policies.rules import RulePolicy, least_recently_used
    >>> simulator = Simulator(16, Budget(grid=16), RulePolicy(everywhere, least_recently_used))
    >>> first = simulator.serve(Request(64, (0, 1, 2, 3)))
    >>> simulator.serve(Request(64, (0, 1, 4, 5))).hit
    32
    """

    def __init__(self, block: int, budget: Budget, policy: ReplayPolicy) -> None:
        self.cache = Cache(budget, policy)
        self.tree = BlockTree(block)
        self._policy = policy
        self._kv = KvBudget(self.tree, budget.kv_tokens) if budget.kv_tokens is not None else None
        self._count = 0

    def serve(self, request: Request) -> Served:
        """Serve the next request.

        Time is the policy's, and linear in what the request adds to the tree and in its path.

        Raises
        ------
        ValueError
            If the policy does what no cache could, or the prompt has no room.
        """
        match = self.tree.match(request)
        overlap = min(match.tokens, request.length - 1)
        path = tuple(self.cache.live.path(match, overlap))
        source = path[0] if path else None
        arrival = Arrival(
            self._count,
            request.length,
            request.time,
            overlap,
            source.depth if source is not None else 0,
            path,
            match,
        )
        self._count += 1
        if source is not None:
            self.cache.live.use(source, arrival.number)
        self.cache.begin(arrival, self._insert(request, match))
        self._policy.serve(arrival, self.cache)
        written, evicted = self.cache.end()
        return Served(
            request.length, overlap, arrival.start, source, written, evicted, len(self.cache.live)
        )

    def _insert(self, request: Request, match: Match) -> list[tuple[Segment, int]]:
        """Add a prompt to the tree, for which leaves may go, and return its path."""
        if self._kv is not None:
            for leaf, depth in self._kv.make_room(request, match):
                on_leaf = self.cache.live.on(leaf)
                for state in [on_leaf[each] for each in on_leaf if each > depth]:
                    self.cache.evict(state)
                self._policy.cut(Match(depth, leaf).path())
        path = list(match.path())
        segment = self.tree.insert(request, match)
        if segment is not None:
            path.insert(0, (segment, segment.end))
            if self._kv is not None:
                self._kv.add(segment)
        return path


def replay(
    trace: Trace,
    policy: ReplayPolicy,
    budget: Budget,
    watch: Callable[[Served], None] | None = None,
) -> tuple[Served, ...]:
    """Serve a whole trace from an empty cache, and return how each request went.

    Parameters
    ----------
    trace
        Requests in order.
    policy
        A new one: what it learned elsewhere would be knowledge of the future.
    budget
        See `Budget`.
    watch
        Called after each request, for a progress bar or a certificate.

    Examples
    --------
    >>> from tree_placement.replay.policies import policy_named
    >>> from tree_placement.replay.trace import trace_of_prompts
    >>> trace = trace_of_prompts([range(640), [*range(320), *range(900, 1000)]], block=16)
    >>> [served.hit for served in replay(trace, policy_named("dense", trace, Budget()), Budget())]
    [0, 320]
    """
    simulator = Simulator(trace.block, budget, policy)
    served = []
    for request in trace.requests:
        served.append(simulator.serve(request))
        if watch is not None:
            watch(served[-1])
    return tuple(served)
