"""The simulator: every hit checked from the trace alone, and what it refuses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from replay_checker import checked_hits, shared_tokens
from shared_traces import grid_of, shared_trace

from tree_placement.policy import PolicySettings, SparsePolicy
from tree_placement.replay import (
    Arrival,
    Budget,
    Cache,
    ReplayPolicy,
    Request,
    Served,
    Trace,
    replay,
    trace_of_prompts,
)
from tree_placement.replay.certificate import certificate_line
from tree_placement.replay.policies import policy_named
from tree_placement.replay.policies.sparse import SparseReplay
from tree_placement.replay.states import State

BLOCK, GRID, SLOTS = 4, 8, 6


class Whimsical(ReplayPolicy):
    """Writes and evicts at random, and may evict what the same request wrote."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._live: list[State] = []

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        for depth in cache.depths():
            if self._draw.random() < 0.4 and not cache.lives_at(depth):
                while cache.is_full or (self._live and self._draw.random() < 0.2):
                    cache.evict(self._draw.choice(self._live))
                self._live.append(cache.write(depth))

    def forget(self, state: State) -> None:
        self._live.remove(state)


def whimsical() -> ReplayPolicy:
    return Whimsical(7)


def sparse() -> ReplayPolicy:
    return SparseReplay(SparsePolicy(PolicySettings(grid=GRID, tail=12, bin=4)))


POLICIES = pytest.mark.parametrize("policy", [whimsical, sparse])


def random_trace(seed: int, requests: int = 60) -> Trace:
    """Prompts that leave earlier ones at random depths, or repeat them."""
    draw = random.Random(seed)
    prompts: list[list[int]] = []
    for _ in range(requests):
        earlier = draw.choice(prompts) if prompts and draw.random() < 0.9 else []
        kept = earlier[: draw.randrange(len(earlier) + 1)] if draw.random() < 0.8 else earlier
        prompts.append([*kept, *(draw.randrange(3) for _ in range(draw.randrange(1, 40)))])
    return trace_of_prompts(prompts, BLOCK)


def lines_of(served: tuple[Served, ...]) -> list[str]:
    return [certificate_line(each) for each in served]


@POLICIES
@pytest.mark.parametrize("seed", range(12))
def test_every_hit_is_what_the_trace_allows(policy: Callable[[], ReplayPolicy], seed: int) -> None:
    trace = random_trace(seed)
    served = replay(trace, policy(), Budget(slots=SLOTS, grid=GRID))
    hits = checked_hits(trace, GRID, SLOTS, lines_of(served))
    assert hits == [each.hit for each in served]
    assert any(hits)


@pytest.mark.parametrize("seed", range(12))
def test_overlap_is_the_longest_that_any_earlier_prompt_shares(seed: int) -> None:
    trace = random_trace(seed)
    for index, served in enumerate(
        replay(trace, policy_named("dense", trace, Budget()), Budget(grid=GRID))
    ):
        longest = max((shared_tokens(trace, index, each) for each in range(index)), default=0)
        assert served.overlap == min(longest, trace.requests[index].length - 1)
        assert served.hit == served.overlap // GRID * GRID


@POLICIES
@pytest.mark.parametrize("count", [1, 17, 40])
def test_no_policy_knows_the_future(policy: Callable[[], ReplayPolicy], count: int) -> None:
    trace, budget = random_trace(3), Budget(slots=SLOTS, grid=GRID)
    whole = lines_of(replay(trace, policy(), budget))
    assert lines_of(replay(trace.first(count), policy(), budget)) == whole[:count]


def test_a_policy_that_knows_the_future_would_be_seen() -> None:
    budget = Budget(slots=SLOTS, grid=GRID)
    whole, cut = (
        lines_of(replay(trace, Whimsical(len(trace.requests)), budget))
        for trace in (random_trace(3), random_trace(3).first(40))
    )
    assert cut != whole[:40]


def spoiled(lines: list[str], index: int, key: str, value: object) -> list[str]:
    claim = json.loads(lines[index])
    assert claim[key] != value
    return [*lines[:index], json.dumps({**claim, key: value}), *lines[index + 1 :]]


def test_false_certificates_are_seen() -> None:
    trace = random_trace(3)
    lines = lines_of(replay(trace, whimsical(), Budget(slots=SLOTS, grid=GRID)))
    claims = [json.loads(line) for line in lines]
    hit = next(index for index, claim in enumerate(claims) if claim["hit"] > GRID)
    evicting = next(index for index, claim in enumerate(claims) if claim["evicted"])
    writing = next(index for index, claim in enumerate(claims) if claim["written"])
    false = [
        spoiled(lines, hit, "hit", claims[hit]["hit"] + GRID),
        spoiled(lines, hit, "hit", claims[hit]["hit"] - GRID),
        spoiled(lines, hit, "from", None),
        spoiled(lines, hit, "from", [hit, claims[hit]["hit"]]),
        spoiled(lines, evicting, "evicted", []),
        spoiled(lines, evicting, "evicted", [[evicting, GRID]]),
        spoiled(lines, writing, "written", [GRID + 1]),
        spoiled(lines, writing, "written", []),
        spoiled(lines, writing, "written", [GRID * 1000]),
        lines[:-1],
    ]
    for claimed in false:
        with pytest.raises(AssertionError):
            checked_hits(trace, GRID, SLOTS, claimed)


class Writes(ReplayPolicy):
    """Writes states at given depths of the first request."""

    def __init__(self, *depths: int) -> None:
        self._depths = depths

    def serve(self, arrival: Arrival, cache: Cache) -> None:
        for depth in self._depths:
            cache.write(depth)

    def forget(self, state: State) -> None:
        raise AssertionError("nothing goes")


@pytest.mark.parametrize(
    ("depths", "need"),
    [
        ((9,), "a multiple of 8"),
        ((0,), "in (0, 40]"),
        ((48,), "in (0, 40]"),
        ((8, 8), "without a live state"),
        ((8, 16, 24), "a free slot"),
    ],
)
def test_what_no_cache_could_do_is_refused(depths: tuple[int, ...], need: str) -> None:
    trace = Trace(BLOCK, (Request(40, tuple(range(10))),))
    with pytest.raises(ValueError, match="need") as error:
        replay(trace, Writes(*depths), Budget(slots=2, grid=GRID))
    assert need in str(error.value)


@pytest.mark.parametrize("name", ["narrativeqa_blk16", "quality_blk16"])
@pytest.mark.parametrize("slots", [4, 16])
def test_real_traces_hold_what_they_claim(name: str, slots: int) -> None:
    trace, grid = shared_trace(name), grid_of(name)
    policy = SparseReplay(SparsePolicy(PolicySettings(grid=grid)))
    served = replay(trace, policy, Budget(slots=slots, grid=grid))
    hits = checked_hits(trace, grid, slots, lines_of(served))
    assert any(hits)
