"""What `benchmarks/serve_trees.py` draws, measures and prints; no server is started."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest

pytest.importorskip("rich")

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import serve_trees
from tree_moments import NO_TOKEN, Moment, Watched, moment_of, random_cost, states_of, staying
from tree_prompts import GRID, TreeWorkload, workloads
from tree_report import print_report

from sglang_sparse.demo.server import Server
from tree_placement.tree import Optimality, PrefixTree, TreeShape, classify, place_tree
from tree_placement.tree.prefix_tree import State

WORKLOADS = workloads(seed=3)
EACH = pytest.mark.parametrize("workload", WORKLOADS, ids=[each.name for each in WORKLOADS])


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two prompts begin with alike."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def test_the_trees_have_their_shapes() -> None:
    shapes = [classify(each.tree) for each in WORKLOADS]
    assert shapes == [TreeShape.STAR, TreeShape.COMB, TreeShape.GENERAL, TreeShape.GENERAL]
    for each in WORKLOADS:
        assert each.tree.weights.sum() == pytest.approx(1.0)
        assert (each.tree.depths % GRID == 0).all()


@EACH
def test_prompts_leave_the_tree_where_its_weights_say(workload: TreeWorkload) -> None:
    """The deepest node whose path a prompt begins with, found token by token."""
    prompts = list(workload.prompts(400, seed=1))
    nodes = range(len(workload.tree))
    left: Counter[int] = Counter()
    for prompt in prompts:
        assert 256 < len(prompt) < 4_000
        begun = [v for v in nodes if common(prompt, workload.path(v)) == len(workload.path(v))]
        node = max(begun, key=lambda v: len(workload.path(v)))
        left[node] += 1
        shortest, longest = workload.tails
        assert shortest <= len(prompt) - int(workload.tree.depths[node]) <= longest
    drawn = np.array([left[node] for node in nodes])
    expected = 400 * workload.tree.weights
    spread = (drawn - expected) ** 2 / np.maximum(expected, 1.0)
    assert spread.sum() < 2.0 * len(nodes)
    assert (np.roll(drawn, 1) - expected).std() > 2.0 * (drawn - expected).std()


@EACH
def test_branches_part_at_their_junction(workload: TreeWorkload) -> None:
    """Paths begin alike down to their lowest common node, and no further."""
    tree = workload.tree

    def way(node: int) -> set[int]:
        found = {node}
        while node > 0:
            node = int(tree.parents[node])
            found.add(node)
        return found

    for one in range(1, len(tree)):
        for other in range(1, one):
            junction = max(tree.depths[node] for node in way(one) & way(other))
            assert common(workload.path(one), workload.path(other)) == junction


def test_a_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    def first(seed: int) -> list[Sequence[int]]:
        return list(workloads(seed)[0].prompts(3, seed))

    assert first(5) == first(5)
    assert first(5) != first(6)


class TellingServer:
    """Answers as a server would that keeps states at places of the tree that is drawn from, and
    whose forecast is the truth.

    Explanations are found token by token, from the tokens that each state stands for.
    """

    def __init__(self, workload: TreeWorkload, states: Sequence[State]) -> None:
        self._workload = workload
        self._states = states

    def get(self, path: str) -> httpx.Response:
        assert path == "/sparse/placement"
        tree = self._workload.tree
        answer = {
            "grid": GRID,
            "parents": tree.parents.tolist(),
            "lengths": tree.lengths.tolist(),
            "weights": tree.weights.tolist(),
            "kept": sorted(node for node, _ in self._states),
            "ids": list(range(len(self._states))),
        }
        return answered([answer])

    def post(self, path: str, *, input_ids: list[int], extra_key: str) -> httpx.Response:
        assert (path, extra_key) == ("/sparse/explain", self._workload.name)
        assert input_ids[-1] == NO_TOKEN
        depths = [0]
        for node, _ in self._states:
            tokens = self._workload.path(node)
            if common(tokens, input_ids) == len(tokens):
                depths.append(len(tokens))
        return answered({"state": max(depths)})


def answered(body: Any) -> httpx.Response:
    return httpx.Response(200, json=body, request=httpx.Request("GET", "http://host"))


def at_ends(tree: PrefixTree, nodes: Sequence[int]) -> list[State]:
    return [(node, int(tree.lengths[node])) for node in nodes]


@EACH
def test_a_moment_is_what_the_server_tells_on_both_trees(workload: TreeWorkload) -> None:
    tree = workload.tree
    best = place_tree(tree, 7, grid=GRID)
    at = moment_of(cast(Server, TellingServer(workload, best.states)), workload, 7)
    assert at.nodes == len(tree)
    assert at.forecast.cost == pytest.approx(best.cost)
    assert at.truth.cost == pytest.approx(best.cost)
    assert at.truth.ratio == pytest.approx(1.0)
    assert at.random > 1.2 * best.cost
    other = at_ends(tree, range(1, 8))
    worse = moment_of(cast(Server, TellingServer(workload, other)), workload, 7)
    assert worse.truth.cost == pytest.approx(worse.forecast.cost)
    assert worse.truth.exact == pytest.approx(best.cost)
    assert worse.truth.ratio > 1.05


def test_states_beyond_the_slots_go_the_least_valuable_first() -> None:
    tree = PrefixTree(np.array([-1, 0, 1, 1]), np.array([0, 4, 2, 3]), np.array([0.0, 1, 9, 5]))
    kept = at_ends(tree, (1, 2, 3))
    assert staying(tree, kept, 3) == kept
    assert staying(tree, kept, 2) == at_ends(tree, (2, 3))
    assert staying(tree, kept, 1) == at_ends(tree, (2,))
    assert staying(tree, kept, 0) == []


def test_states_are_found_from_the_depths_that_they_serve() -> None:
    tree = PrefixTree(np.array([-1, 0, 1, 1]), np.array([0, 4, 2, 3]), np.array([0.0, 1, 9, 5]))
    assert states_of(tree, [4, 5, 4]) == {(1, 4), (2, 1)}
    assert states_of(tree, [3, 3, 7]) == {(1, 3), (3, 3)}
    assert states_of(tree, [0, 0, 0]) == set()


def test_random_states_cost_nothing_where_all_nodes_have_one() -> None:
    tree = WORKLOADS[0].tree
    assert random_cost(tree, len(tree) + 5) == 0.0
    assert random_cost(tree, 4) > random_cost(tree, 12) > 0.0


def watched(cost: float, random: float) -> Watched:
    found = Optimality(TreeShape.STAR, 4, without=900.0, cost=cost, apart=100.0, exact=100.0)
    moment = Moment(45, found, random, found, random)
    return Watched(WORKLOADS[0], [moment, moment], prompts=300, slots=17)


def test_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert watched(105.0, 300.0).is_close
    assert not watched(105.1, 300.0).is_close
    assert watched(105.0, 300.0).control_is_far
    assert not watched(100.0, 104.0).control_is_far
    print_report([watched(104.0, 300.0), watched(130.0, 101.0)])
    printed = capsys.readouterr().out
    assert "star: 1.040 of the exact placement, within 1.05" in printed
    assert "star: 1.300 of the exact placement, NOT within 1.05" in printed
    assert printed.count("this says nothing") == 1
    assert "99.50%" in printed


def test_the_arguments_have_their_defaults() -> None:
    given = serve_trees._arguments([])
    assert given.trees == [each.name for each in workloads(seed=0)]
    assert given.moments <= given.prompts // 2


@pytest.mark.parametrize("wrong", [["--moments", "0"], ["--prompts", "10"], ["--slots", "3"]])
def test_too_few_of_anything_is_said_before_a_server_starts(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        serve_trees._arguments(wrong)
    assert ended.value.code == 2
    assert f"{wrong[0]}: got {wrong[1]}; need at least" in capsys.readouterr().err


def test_where_nothing_is_left_to_compute_the_ratio_is_one() -> None:
    found = Optimality(TreeShape.STAR, 4, without=900.0, cost=0.0, apart=0.0, exact=0.0)
    nothing = Watched(WORKLOADS[0], [Moment(45, found, 0.0, found, 0.0)], prompts=300, slots=17)
    assert nothing.ratio == 1.0
    print_report([nothing])
