"""Where overlaps end and states lie, against comparisons of whole prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from replay_checker import StateName, shared_tokens, usable_states
from test_replay import BLOCK, GRID, SLOTS, random_trace

from tree_placement.replay import Budget, Served, Trace, replay
from tree_placement.replay.certificate import certificate_line
from tree_placement.replay.kept import KeptTree, kept_trees
from tree_placement.replay.overlaps import overlaps
from tree_placement.replay.policies import policy_named
from tree_placement.tree.prefix_tree import tree_recompute

TRACE = random_trace(3, requests=120)


def served_by(name: str, slots: int | None) -> tuple[Served, ...]:
    budget = Budget(slots=slots, grid=GRID)
    return replay(TRACE, policy_named(name, TRACE, budget), budget)


def live_after(served: Sequence[Served]) -> set[StateName]:
    """The live states, by the certificate's lines alone."""
    live: set[StateName] = set()
    for number, each in enumerate(served):
        line = json.loads(certificate_line(each))
        live -= set(map(tuple, line["evicted"]))
        live |= {(number, depth) for depth in line["written"]}
    return live


def mean_recompute(trace: Trace, members: Sequence[int], live: set[StateName]) -> float:
    """What the overlaps of a family would have recomputed above the states that live now."""
    gaps = []
    for number in members:
        earlier = range(number)
        overlap = max((shared_tokens(trace, each, number) for each in earlier), default=0)
        overlap = min(overlap, trace.requests[number].length - 1)
        if overlap:
            usable = usable_states(trace, number, live, overlap)
            gaps.append(overlap - max((depth for _, depth in usable), default=0))
    return sum(gaps) / len(gaps)


@pytest.mark.parametrize("name", ["gapr_eb", "sparse"])
@pytest.mark.parametrize(("slots", "after"), [(SLOTS, 120), (40, 120), (40, 50)])
def test_trees_hold_the_live_states_and_cost_what_prompts_would(
    name: str, slots: int, after: int
) -> None:
    served = served_by(name, slots)[:after]
    live = live_after(served)
    trees = kept_trees(TRACE, served)
    assert sum(len(each.states) for each in trees) == len(live) == served[-1].live
    families: dict[int, list[int]] = {}
    for number, request in enumerate(TRACE.requests[:after]):
        if request.blocks:
            families.setdefault(request.blocks[0], []).append(number)
    with_states = [
        members
        for members in families.values()
        if any(usable_states(TRACE, number, live, 10**9) for number in members)
    ]
    moved = 0
    for kept, members in zip(trees, with_states, strict=True):
        assert kept.requests == len(members)
        depths = sorted(depth for writer, depth in live if writer in members)
        assert sorted(depths_of(kept)) == depths
        if kept.tree.weights.any():
            truth = mean_recompute(TRACE, members, live)
            assert tree_recompute(kept.tree, kept.states) == pytest.approx(truth)
            moved += tree_recompute(kept.tree, kept.states[1:]) != pytest.approx(truth)
    assert moved, "a state left out would be seen"


def depths_of(kept: KeptTree) -> list[int]:
    above = kept.tree.depths - kept.tree.lengths
    return [int(above[node]) + within for node, within in kept.states]


def test_overlaps_are_the_longest_common_beginnings() -> None:
    found = {each.request: each for each in overlaps(TRACE)}
    earlier_lengths = set()
    for number, request in enumerate(TRACE.requests):
        shared = [shared_tokens(TRACE, earlier, number) for earlier in range(number)]
        longest = max(shared, default=0)
        if not longest:
            assert number not in found
            continue
        overlap = found[number]
        assert overlap.depth == min(longest, request.length - 1)
        first = TRACE.requests[shared.index(longest)]
        assert (overlap.earlier_length, overlap.from_end) == (
            first.length,
            first.length - overlap.depth,
        )
        earlier_lengths.add(overlap.from_end // BLOCK)
    assert len(found) > 30
    assert len(earlier_lengths) > 3
