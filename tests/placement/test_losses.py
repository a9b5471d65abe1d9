"""What became of states that do not live, and what is forgotten with the tokens below a cut."""

from __future__ import annotations

import random

import pytest

from tree_placement.policy import (
    Extent,
    LossReason,
    PathPart,
    PlannedState,
    PolicySettings,
    RefusedState,
    SparsePolicy,
    Visit,
)

TRUNK = (PathPart(1, 640),)


@pytest.fixture
def planned() -> tuple[SparsePolicy, dict[int, PlannedState]]:
    """A policy that knows what it planned on a prompt of ten grid steps."""
    policy = SparsePolicy(PolicySettings())
    visit = Visit("", (), 0, 0, 0)
    states = policy.plan(visit, policy.observe(visit, 640), Extent(0, 640, full=False))
    policy.publish(TRUNK, states)
    return policy, {state.depth: state for state in states}


def test_an_evicted_state_keeps_its_price(
    planned: tuple[SparsePolicy, dict[int, PlannedState]],
) -> None:
    policy, states = planned
    deepest = max(states)
    policy.add(7, TRUNK, states[deepest])
    policy.observe(Visit("", TRUNK, 320, 640, 1), 700)
    (first,) = policy.eviction_order()
    price = policy.value(first)
    policy.remove(7, LossReason.TRIMMED)
    for _ in range(3):
        policy.observe(Visit("", (), 0, 0, 0), 700)
    missed = {each.depth: each for each in policy.missed(TRUNK, 0)}
    assert set(missed) == set(states)
    loss = missed[deepest].loss
    assert loss is not None
    assert (loss.reason, loss.value, loss.price) == (LossReason.TRIMMED, price, price)
    assert missed[deepest].age == 3
    policy.add(8, TRUNK, states[deepest])
    assert deepest not in {each.depth for each in policy.missed(TRUNK, 0)}
    policy.remove(8)
    (again, *_) = policy.missed(TRUNK, deepest - 1)
    assert again.loss is not None
    assert again.loss.reason is LossReason.EVICTED


def test_a_refused_state_says_why(planned: tuple[SparsePolicy, dict[int, PlannedState]]) -> None:
    policy, states = planned
    shallow, *_, deep = sorted(states)
    policy.lose(TRUNK, RefusedState(deep, LossReason.NOT_WORTH, 1.5, 2.5))
    policy.lose(TRUNK, RefusedState(deep - 1, LossReason.NO_SLOT))
    policy.add(7, TRUNK, states[shallow])
    policy.lose(TRUNK, RefusedState(shallow, LossReason.REVOKED))
    missed = policy.missed(TRUNK, 0)
    assert [each.depth for each in missed] == sorted(set(states) - {shallow}, reverse=True)
    assert missed[0].loss is not None
    assert missed[0].loss[:3] == (LossReason.NOT_WORTH, 1.5, 2.5)
    assert {each.loss for each in missed[1:]} <= {None}


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_forgets_what_is_deeper_and_nothing_else(seed: int) -> None:
    """Against positions in a set: on the branch deeper than the cut, and on what begins there
    deeper; branches that begin right at it belong to other prompts."""
    draw = random.Random(seed)
    policy = SparsePolicy(PolicySettings())
    paths = {0: (PathPart(0, 2048),)}
    for branch in range(1, 8):
        above = paths[draw.randrange(branch)]
        depth = 64 * draw.randrange(above[0].depth // 64 - 15, above[0].depth // 64)
        parts = (PathPart(branch, depth + 1024), above[0]._replace(depth=depth), *above[1:])
        paths[branch] = parts
    known: set[tuple[int, int]] = set()
    begins = {branch: path[1].depth if len(path) > 1 else 0 for branch, path in paths.items()}
    for branch, path in paths.items():
        plan = [
            policy.unplanned("", depth) for depth in range(begins[branch] + 64, path[0].depth, 64)
        ]
        policy.publish(path, plan)
        known |= {(branch, state.depth) for state in plan}
    cut = draw.randrange(8)
    at = begins[cut] + 64 * draw.randrange(12)
    policy.cut((PathPart(cut, at), *paths[cut][1:]))

    def is_lost(branch: int, depth: int) -> bool:
        path = paths[branch]
        chain = [(part.branch, part.depth) for part in path]
        above = next((reach for name, reach in chain[1:] if name == cut), None)
        return depth > at if branch == cut else above is not None and above > at

    left = {
        (branch, each.depth)
        for branch, path in paths.items()
        for each in policy.missed(path, begins[branch])
    }
    assert left == {position for position in known if not is_lost(*position)}
    assert left != known
