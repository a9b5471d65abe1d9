"""The policy's states as a prefix tree, against a walk over the forest that they stand on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from driven_policy import DrivenPolicy, driven
from slow_states import Position, Unlearning

from tree_placement.policy import PathPart, PolicySettings, SparsePolicy, TreeForecast, Visit
from tree_placement.policy.hazard import HazardModel
from tree_placement.tree import PrefixTree, tree_recompute

SEEDS = pytest.mark.parametrize("seed", range(8))


@pytest.fixture(autouse=True)
def _untaught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is learned, so that the slow version knows the rates."""
    monkeypatch.setattr(HazardModel, "observe", Unlearning.observe)


def expected_recompute(run: DrivenPolicy) -> float:
    """What the next prompt is expected to compute again: each known position by itself."""
    slow, total = run.slow, 0.0
    for state, positions in slow.served().items():
        depth = slow.live[state][1] if state is not None else 0
        total += sum(slow.rate(position) * (position[1] - depth) for position in positions)
    return total


def junctions(run: DrivenPolicy) -> set[Position]:
    """Where the branches that lead to a known position begin, on the branch above."""
    paths = map(run.forest.path, run.slow.known)
    return {(part.branch, part.depth) for path in paths for part in path[1:]}


def way_up(tree: PrefixTree, node: int) -> list[int]:
    way = []
    while node > 0:
        way.append(node)
        node = int(tree.parents[node])
    return way


@SEEDS
def test_its_cost_is_what_the_walk_expects(seed: int) -> None:
    run = driven(seed)
    for _ in range(10):
        run.serve(3)
        forecast = run.policy.forecast()
        cost = tree_recompute(forecast.tree, forecast.kept)
        assert cost == pytest.approx(expected_recompute(run))


@SEEDS
def test_a_state_is_worth_what_the_cost_rises_by_without_it(seed: int) -> None:
    run = driven(seed)
    forecast = run.policy.forecast()
    cost = tree_recompute(forecast.tree, forecast.kept)
    values = run.slow.values()
    assert set(forecast.ids) == set(values)
    assert len(values) > 3
    for state, place in zip(forecast.ids, forecast.kept, strict=True):
        rest = [each for each in forecast.kept if each != place]
        assert tree_recompute(forecast.tree, rest) - cost == pytest.approx(values[state])
        assert run.policy.value(state) == pytest.approx(values[state])


@SEEDS
def test_its_nodes_are_the_known_positions_and_the_junctions(seed: int) -> None:
    run = driven(seed)
    tree = run.policy.forecast().tree
    rates = {position: run.slow.rate(position) for position in run.slow.known}
    expected = Counter(
        (depth, round(rates.get((branch, depth), 0.0), 9))
        for branch, depth in junctions(run) | set(rates)
    )
    nodes = zip(tree.depths[1:].tolist(), tree.weights[1:].round(9).tolist(), strict=True)
    assert Counter(nodes) == expected


@SEEDS
def test_a_state_is_above_another_where_the_walk_finds_it(seed: int) -> None:
    run = driven(seed)
    forecast = run.policy.forecast()
    node_of = {state: node for state, (node, _) in zip(forecast.ids, forecast.kept, strict=True)}
    state_at = {node: state for state, node in node_of.items()}
    for state, node in node_of.items():
        assert forecast.tree.depths[node] == run.slow.live[state][1]
        above = [state_at[each] for each in way_up(forecast.tree, node) if each in state_at]
        assert above == run.slow.live_on_path(run.slow.live[state])


@SEEDS
def test_to_ask_changes_nothing(seed: int) -> None:
    asked, other = driven(seed), driven(seed)
    for _ in range(20):
        asked.policy.forecast()
        for run in (asked, other):
            run.serve(1)
        assert list(asked.policy.eviction_order()) == list(other.policy.eviction_order())
        assert asked.policy.statistics() == other.policy.statistics()


def heavier(forecast: TreeForecast) -> TreeForecast:
    weights = forecast.tree.weights.copy()
    unserved = np.setdiff1d(np.flatnonzero(weights), [node for node, _ in forecast.kept])
    weights[unserved[0]] *= 1.01
    tree = PrefixTree(forecast.tree.parents, forecast.tree.lengths, weights)
    return TreeForecast(tree, forecast.kept, forecast.ids)


def one_less(forecast: TreeForecast) -> TreeForecast:
    return TreeForecast(forecast.tree, forecast.kept[1:], forecast.ids[1:])


@pytest.mark.parametrize("wrong", [heavier, one_less])
def test_another_forecast_would_be_seen(wrong) -> None:  # type: ignore[no-untyped-def]
    run = driven(seed=2)
    forecast = wrong(run.policy.forecast())
    cost = tree_recompute(forecast.tree, forecast.kept)
    assert cost != pytest.approx(expected_recompute(run))


def test_before_anything_is_known_it_is_a_root() -> None:
    policy = SparsePolicy(PolicySettings())
    policy.observe(Visit("", (PathPart(1, 640),), 640, 640, 1), 700)
    forecast = policy.forecast()
    assert (len(forecast.tree), forecast.kept, forecast.ids) == (1, (), ())
