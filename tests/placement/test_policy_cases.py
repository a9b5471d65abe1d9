"""What went wrong for users of prefix caches under few slots, beside rules under which it does."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from tree_placement.replay import Budget, Served, replay, trace_of_prompts
from tree_placement.replay.policies import policy_named
from tree_placement.replay.simulator import Simulator

BLOCK, GRID = 16, 64
NEAR = 192

_fresh = iter(range(10**9))


def tokens(count: int) -> list[int]:
    """Tokens that no prompt had before."""
    return [next(_fresh) for _ in range(count)]


def served_under(name: str, prompts: Sequence[list[int]], slots: int) -> tuple[Served, ...]:
    trace, budget = trace_of_prompts(prompts, BLOCK), Budget(slots=slots, grid=GRID)
    return replay(trace, policy_named(name, trace, budget), budget)


# A divergence keeps the states above it, while one-off prompts come between


def two_divergences(rounds: int, others: int) -> Iterator[tuple[int, list[int]]]:
    """Prompts that leave one trunk at two depths, among others that share nothing.

    Each comes with the depth where it leaves the trunk, 0 for another.
    """
    trunk = tokens(6_000)
    yield 0, trunk
    for _ in range(rounds):
        for depth in (2_000, 4_000):
            yield depth, [*trunk[:depth], *tokens(400)]
            for _ in range(others):
                yield 0, tokens(1_500)


def last_hits(name: str, slots: int) -> dict[int, list[int]]:
    """The hits of the last ten prompts that leave at each depth."""
    prompts = list(two_divergences(rounds=40, others=4))
    served = served_under(name, [prompt for _, prompt in prompts], slots)
    hits: dict[int, list[int]] = {2_000: [], 4_000: []}
    for (depth, _), each in zip(prompts, served, strict=True):
        if depth:
            hits[depth].append(each.hit)
    return {depth: found[-10:] for depth, found in hits.items()}


def test_two_prompts_that_leave_at_different_depths_both_keep_their_states() -> None:
    for depth, hits in last_hits("sparse", slots=8).items():
        assert set(hits) == {depth // GRID * GRID}


@pytest.mark.parametrize("name", ["stock", "stock_nobr", "end_branch", "vllm_align", "llama_cpp"])
def test_under_the_rules_of_the_field_they_do_not(name: str) -> None:
    hits = last_hits(name, slots=8)
    assert any(hit < depth - GRID for depth, found in hits.items() for hit in found)


# Few states stand where prompts leave, not all at one spot


PLACES = (1_000, 3_000, 5_000, 7_000)


def covered(name: str, slots: int) -> float:
    """The share of places near which a state stands, after prompts left at all of them."""
    draw = random.Random(4)
    document = tokens(8_000)
    prompts = [document]
    for _ in range(30):
        for place in draw.sample(PLACES, len(PLACES)):
            leaves = place + draw.randrange(64)
            prompts.append([*document[:leaves], *tokens(300)])
    trace, budget = trace_of_prompts(prompts, BLOCK), Budget(slots=slots, grid=GRID)
    simulator = Simulator(BLOCK, budget, policy_named(name, trace, budget))
    for request in trace.requests:
        simulator.serve(request)
    match = simulator.tree.match(trace.requests[0])
    depths = [state.depth for state in simulator.cache.live.path(match, len(document))]
    assert len(simulator.cache.live) <= slots
    near = [any(0 <= place + 64 - depth <= NEAR for depth in depths) for place in PLACES]
    return sum(near) / len(near)


def test_few_states_are_spread_to_where_prompts_leave() -> None:
    assert covered("sparse", slots=6) == 1.0


@pytest.mark.parametrize("name", ["stock", "tail_192", "end_branch", "vllm_align", "llama_cpp"])
def test_under_the_rules_of_the_field_they_cluster(name: str) -> None:
    assert covered(name, slots=6) <= 0.75


# The state near the end outlives spaced ones


def gaps_in_chats(name: str, slots: int) -> list[int]:
    """What turns of four chats recompute of earlier ones, once they have begun."""
    draw = random.Random(5)
    chats = [tokens(3_000) for _ in range(4)]
    prompts = []
    for turn in range(80):
        chat = chats[draw.randrange(4)] if turn >= 4 else chats[turn]
        chat += tokens(draw.randrange(100, 500))
        prompts.append(list(chat))
    return [each.overlap - each.hit for each in served_under(name, prompts, slots)][20:]


def test_the_state_near_the_end_outlives_spaced_ones() -> None:
    assert max(gaps_in_chats("sparse", slots=12)) <= 512


@pytest.mark.parametrize("name", ["balanced_3", "sqrt", "llama_cpp"])
def test_spaced_states_under_least_recently_used_do_not(name: str) -> None:
    assert max(gaps_in_chats(name, slots=12)) > 2_000
