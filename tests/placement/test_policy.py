"""The policy: its promises about every plan, and placement learned from synthetic documents."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tree_placement.policy import (
    Extent,
    PlannedState,
    PolicySettings,
    SparsePolicy,
    Visit,
)

GRID, TAIL = 64, 192
UNKNOWN = Visit("", (), 0, 0)


def observed(seed: int, prompts: int = 60) -> tuple[SparsePolicy, random.Random]:
    """A policy that has seen random prompts over a few branches."""
    draw = random.Random(seed)
    policy = SparsePolicy(PolicySettings(states_per_path=draw.randrange(1, 9)))
    for _ in range(prompts):
        policy.observe(random_visit(draw), [])
    return policy, draw


def random_visit(draw: random.Random) -> Visit:
    if draw.random() < 0.2:
        return UNKNOWN
    earlier = draw.randrange(100, 9000)
    branches = tuple(draw.sample(range(12), draw.randrange(1, 4)))
    return Visit(draw.choice(("", "other")), branches, draw.randrange(1, earlier + 1), earlier)


def random_extent(draw: random.Random, visit: Visit, states: Sequence[int] = ()) -> Extent:
    start = draw.choice((0, visit.overlap // GRID * GRID // 2, draw.randrange(visit.overlap + 1)))
    return Extent(start, visit.overlap + draw.randrange(1, 9000), states)


def random_states(policy: SparsePolicy, draw: random.Random) -> list[list[int]]:
    """Add states to a policy; return the path of each, itself first, and an empty one."""
    paths: list[list[int]] = [[]]
    for state in range(draw.randrange(12)):
        above = draw.choice(paths)
        policy.add(state, PlannedState(64 * (len(above) + 1), 0.5), next(iter(above), None), ())
        paths.append([state, *above])
    return paths


def floor(depth: int, start: int) -> int:
    return start + (depth - start) // GRID * GRID


@pytest.mark.parametrize("seed", range(40))
def test_what_holds_of_every_plan(seed: int) -> None:
    policy, draw = observed(seed)
    paths = random_states(policy, draw)
    for _ in range(25):
        visit = random_visit(draw)
        extent = random_extent(draw, visit, draw.choice(paths))
        plan = policy.plan(visit, extent)
        depths = [state.depth for state in plan]
        if extent.length - extent.start < GRID:
            assert plan == ()
            continue
        assert depths == sorted(set(depths))
        assert all(extent.start < depth <= extent.length for depth in depths)
        assert all((depth - extent.start) % GRID == 0 for depth in depths)
        end, junction = floor(extent.length, extent.start), floor(visit.overlap, extent.start)
        limit = policy.settings.states_per_path
        useful = [end, junction, floor(extent.length - 1, extent.start)]
        given = list(dict.fromkeys(each for each in useful if each > extent.start))[:limit]
        assert depths[-1] == end
        assert set(given) <= set(depths)
        assert len(depths) <= max(limit - len(extent.states), len(given))
        through = [path for path in paths if not extent.states or extent.states[0] in path]
        fullest = max(map(len, through)) if extent.states else 0
        shared = sum(depth <= visit.overlap for depth in depths)
        given_shared = sum(depth <= visit.overlap for depth in given)
        assert shared <= max(limit - fullest, given_shared)
        shares = [state.share for state in plan]
        assert min(shares) >= 0.0
        assert sum(shares) <= 1.0 + 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_shares_are_the_forecast_summed_by_hand(seed: int) -> None:
    policy, draw = observed(seed)
    for _ in range(10):
        visit = random_visit(draw)
        extent = random_extent(draw, visit)
        plan = policy.plan(visit, extent)
        weights = policy._forecast(visit, extent)
        total = sum(weights.weights.tolist())
        edges = [state.depth for state in plan] + [10**9]
        for position, state in enumerate(plan):
            served = sum(
                weight
                for depth, weight in zip(weights.depths, weights.weights, strict=True)
                if edges[position] <= depth < edges[position + 1]
            )
            assert state.share == pytest.approx(served / total, abs=1e-12)


@pytest.mark.parametrize("length", [500, 1000, 4097, 6000, 8191])
def test_the_tail_is_planned_while_nothing_is_known(length: int) -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=2))
    tail, end = (state.depth for state in policy.plan(UNKNOWN, Extent(0, length, ())))
    assert (tail, end) == ((length - TAIL) // GRID * GRID, length // GRID * GRID)


def test_the_tail_gives_way_where_prompts_leave_elsewhere() -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=2))
    for _ in range(100):
        policy.observe(Visit("", (1,), 2000, 6000), [])
    leaves, _ = (state.depth for state in policy.plan(UNKNOWN, Extent(0, 6000, ())))
    assert leaves == 2000 // GRID * GRID


def test_the_same_calls_give_the_same_answers() -> None:
    def answers() -> list[object]:
        policy, draw = observed(seed=5)
        given: list[object] = []
        for state in range(200):
            visit = random_visit(draw)
            plan = policy.plan(visit, random_extent(draw, visit))
            for planned in plan[:1]:
                policy.add(state, planned, None, ())
            given += [plan, list(policy.eviction_order())]
            if state % 7 == 6:
                policy.remove(next(policy.eviction_order()))
            policy.observe(visit, list(policy.eviction_order())[:2])
        return given

    assert answers() == answers()


def test_statistics_are_kept_apart_by_namespace() -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=2))
    untouched = policy.plan(Visit("b", (), 0, 0), Extent(0, 6000, ()))
    for _ in range(100):
        policy.observe(Visit("a", (1,), 2000, 6000), [])
    assert policy.plan(Visit("b", (), 0, 0), Extent(0, 6000, ())) == untouched
    assert policy.plan(Visit("a", (), 0, 0), Extent(0, 6000, ())) != untouched


def test_a_namespace_unused_longest_is_forgotten() -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=2, namespaces=3))
    unknown = policy.plan(Visit("a", (), 0, 0), Extent(0, 6000, ()))
    for namespace in ("a", "b", "c"):
        for _ in range(50):
            policy.observe(Visit(namespace, (1,), 2000, 6000), [])
    policy.observe(Visit("a", (1,), 2000, 6000), [])
    policy.observe(Visit("d", (1,), 2000, 6000), [])
    assert policy.plan(Visit("a", (), 0, 0), Extent(0, 6000, ())) != unknown
    assert policy.plan(Visit("b", (), 0, 0), Extent(0, 6000, ())) == unknown


def test_states_come_and_go() -> None:
    policy = SparsePolicy(PolicySettings())
    policy.add(1, PlannedState(640, 0.5), None, ())
    policy.add(2, PlannedState(704, 0.5), 1, ())
    assert policy.is_live(1)
    assert list(policy.eviction_order()) == [2, 1], "the smaller gap first"
    policy.remove(1)
    assert not policy.is_live(1)
    policy.clear_states()
    assert list(policy.eviction_order()) == []


def anything(state: int) -> bool:
    return True


def test_a_path_with_too_many_states_gives_up_the_least_valuable() -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=3))
    for state, above in enumerate([None, 0, 1, 1, 3, 0]):
        share = 0.1 if state == 1 else 0.5
        policy.add(state, PlannedState(64 * (state + 1), share), above, ())
    assert policy.surplus(1, anything) == 1, "of 0, 1 and 3, whose value is least"
    assert policy.surplus(1, lambda state: state != 1) == 0
    assert policy.surplus(1, lambda state: state == 4) is None, "the deepest stays"
    assert policy.surplus(2, anything) is policy.surplus(5, anything) is None
    policy.remove(3)
    assert policy.surplus(1, anything) is None
    assert policy.surplus(3, anything) is None, "gone"


@pytest.mark.parametrize("seed", range(5))
def test_a_state_is_worth_a_slot_where_it_saves_more_than_what_it_displaces(seed: int) -> None:
    draw = random.Random(seed)
    policy = SparsePolicy(PolicySettings())
    values = []
    for state in range(20):
        depth, share = 64 * draw.randrange(1, 100), draw.random()
        policy.add(state, PlannedState(depth, share), None, ())
        values.append(depth * (share + 0.02) / 16.0)
    for _ in range(200):
        above, gap, share = draw.randrange(5000), draw.randrange(1, 6400), draw.random()
        displaced = draw.randrange(20)
        expected = gap * (share + 0.02) / 16.0 > values[displaced]
        planned = PlannedState(above + gap, share)
        assert policy.is_worth_a_slot(planned, above, displaced) is expected


# Placement learned from documents whose prompts leave at two kinds of place

DOCUMENTS, KNOWN, PROMPTS, STATES, NEAR = 40, 20, 8, 4, 192


def document(draw: np.random.Generator) -> tuple[int, list[int]]:
    """Return a document's length, and where its prompts leave it in the order they come."""
    length = int(draw.integers(4_000, 9_001))
    centers = draw.permutation([1_500, length - 900] * (PROMPTS // 2)).tolist()
    return length, [center + int(draw.integers(-64, 65)) for center in centers]


def near(depths: list[int], overlap: int) -> bool:
    """Whether a prompt that leaves at `overlap` finds a state at most `NEAR` above."""
    return any(0 <= overlap - depth <= NEAR for depth in depths)


def share_near(placement: Callable[[int], list[int]], seed: int) -> float:
    """Return in how many documents the first prompt to leave finds a state near."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(DOCUMENTS):
        length, overlaps = document(draw)
        found.append(near(placement(length), overlaps[0]))
    return sum(found[KNOWN:]) / len(found[KNOWN:])


def learned_share_near(seed: int) -> float:
    """The same for the policy, which sees every prompt after it was placed for."""
    draw = np.random.default_rng(seed)
    policy = SparsePolicy(PolicySettings(states_per_path=STATES))
    found = []
    for branch in range(DOCUMENTS):
        length, overlaps = document(draw)
        policy.observe(UNKNOWN, [])
        planned = policy.plan(UNKNOWN, Extent(0, length, ()))
        assert len(planned) <= STATES
        found.append(near([state.depth for state in planned], overlaps[0]))
        for overlap in overlaps:
            policy.observe(Visit("", (branch,), overlap, length), [])
    return sum(found[KNOWN:]) / len(found[KNOWN:])


def block(length: int) -> list[int]:
    """The first states at multiples of 1,024 tokens."""
    return list(range(1_024, length, 1_024))[:STATES]


def balanced(length: int) -> list[int]:
    """States that divide the document evenly."""
    return [length * part // (STATES + 1) // GRID * GRID for part in range(1, STATES + 1)]


def tail_and_junctions(length: int) -> list[int]:
    """End and tail; no prompt has left the document yet, so it has no junction."""
    return [length // GRID * GRID, (length - TAIL) // GRID * GRID]


SEEDS = range(10)


@pytest.mark.parametrize("seed", SEEDS)
def test_first_prompts_to_leave_a_new_document_find_a_state_near(seed: int) -> None:
    assert learned_share_near(seed) >= 0.9


@pytest.mark.parametrize("placement", [block, balanced, tail_and_junctions])
def test_placements_that_do_not_learn_leave_them_far(placement: Callable[[int], list[int]]) -> None:
    assert max(share_near(placement, seed) for seed in SEEDS) <= 0.5
