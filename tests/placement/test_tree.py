"""Prefix trees: what they refuse, what is derived from them, and the ways in and out."""

from __future__ import annotations

import itertools
import math
import time

import networkx as nx
import numpy as np
import pytest
from brute_force import TreeCase

from tree_placement.tree.decomposition import split_budget
from tree_placement.tree.duality import price_bound
from tree_placement.tree.exact import place_tree
from tree_placement.tree.graph import from_networkx, to_networkx
from tree_placement.tree.prefix_tree import PrefixTree, tree_recompute
from tree_placement.tree.priced import place_tree_priced
from tree_placement.tree.shape import TreeShape, classify


def random_parents(nodes: int, rng: np.random.Generator) -> list[int]:
    return [-1, *(int(rng.integers(0, node)) for node in range(1, nodes))]


def test_recompute_equals_its_definition(cases: int) -> None:
    differing = 0
    for seed in range(cases):
        case = TreeCase(seed)
        rng = np.random.default_rng(seed)
        count = int(rng.integers(0, len(case.allowed) + 1))
        states = [case.allowed[i] for i in rng.permutation(len(case.allowed))[:count]]
        found = tree_recompute(case.tree(), states + case.fixed, cost=case.cost)
        assert found == case.recompute(tuple(states)), seed
        differing += found != case.recompute(())
    assert differing > cases / 20, "the states must matter in many of the cases"


def test_depths_heights_and_children_equal_walks() -> None:
    rng = np.random.default_rng(5)
    for nodes in (1, 2, 7, 200):
        parents = random_parents(nodes, rng)
        lengths = [0, *rng.integers(1, 50, nodes - 1).tolist()]
        tree = PrefixTree(parents, lengths, np.zeros(nodes))
        graph = to_networkx(tree)
        assert len(tree) == nodes
        assert tree.depths.tolist() == [
            nx.shortest_path_length(graph, 0, node, weight="length") for node in range(nodes)
        ]
        for node in range(nodes):
            assert tree.children_of(node).tolist() == sorted(graph.successors(node))
            farthest = nx.single_source_shortest_path_length(graph, node).values()
            assert tree.heights[node] == max(farthest)
        assert tree.is_path == (max(dict(graph.out_degree()).values()) < 2)


def test_arrays_cannot_be_written_to() -> None:
    parents, lengths, weights = np.array([-1, 0]), np.array([0, 3]), np.array([0.0, 1.0])
    tree = PrefixTree(parents, lengths, weights)
    parents[1], lengths[1], weights[1] = 1, 9, 7.0
    assert (tree.parents.tolist(), tree.depths.tolist()) == ([-1, 0], [0, 3])
    assert tree.weights.tolist() == [0.0, 1.0]
    for array in (tree.parents, tree.lengths, tree.weights, tree.depths, tree.children):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_the_deepest_node_allowed_is_exact() -> None:
    tree = PrefixTree([-1, 0, 1, 0], [0, 2**52, 2**52, 2**53], [0, 0, 1, 0])
    assert tree.depths.tolist() == [0, 2**52, 2**53, 2**53]
    assert tree_recompute(tree, [(2, 2**52 - 1)]) == 1.0
    with pytest.raises(ValueError, match=r"^depth of node 2: got 9007199254740993; need at most"):
        PrefixTree([-1, 0, 1], [0, 2**53, 1], [0, 1, 1])


def test_a_cycle_in_a_large_graph_is_found_in_one_pass() -> None:
    nodes = 20_000
    graph = nx.DiGraph(itertools.pairwise(range(nodes)), length=1)
    nx.set_edge_attributes(graph, 1, "length")
    graph.add_edge("a", "b", length=1)
    graph.add_edge("b", "a", length=1)
    began = time.perf_counter()
    with pytest.raises(ValueError, match=r"^graph: got a cycle above '[ab]'"):
        from_networkx(graph)
    assert time.perf_counter() - began < 2.0, "a set built for each node takes ten times as long"


OBSERVED = PrefixTree.from_observations([-1, 0, 1], [0, 5, 4], [(1, 2, 3.0)])


@pytest.mark.parametrize(
    "state", [(1, 6), (1, 0), (2, 5), (3, 1), (0, 0), (0, 1), (-1, 1), (1, 7), (9, 9)]
)
def test_places_off_the_tree_observed_are_refused(state: tuple[int, int]) -> None:
    assert OBSERVED.fine([(1, 5), (2, 4)]) == ((2, 3), (3, 4))
    with pytest.raises(ValueError, match=r"^states: got \(.*; need a place on the tree observed; "):
        OBSERVED.fine([state])


def observed_cost(case: TreeCase, observations: list, states: list) -> float:
    """Return what observations inside edges cost by definition."""
    total = 0.0
    for node, depth, weight in observations:
        end = case.depth((node, depth))
        reached = [
            case.depth(state)
            for state in states
            if case.is_above(state, node) and (state[0] != node or state[1] <= depth)
        ]
        total += weight * (case.prefill(end) - case.prefill(max(reached, default=0)))
    return total


def test_observations_inside_edges_cost_what_they_should(cases: int) -> None:
    inside = 0
    for seed in range(cases):
        case = TreeCase(seed)
        rng = np.random.default_rng(seed)
        places = [(v, d) for v, length in enumerate(case.lengths) for d in range(1, length + 1)]
        if not places:
            continue
        drawn = [places[i] for i in rng.integers(0, len(places), 6)]
        observations = [(*place, float(rng.integers(0, 4))) for place in drawn]
        states = [places[i] for i in rng.permutation(len(places))[:3]]
        observed = PrefixTree.from_observations(case.parents, case.lengths, observations)
        fine = observed.fine(states)
        assert observed.coarse(fine) == tuple(states), seed
        found = tree_recompute(observed.tree, fine, cost=case.cost)
        truth = observed_cost(case, observations, states)
        assert found == truth, seed
        at_ends = [(node, case.lengths[node], weight) for node, _, weight in observations]
        inside += truth != observed_cost(case, at_ends, states)
        assert len(observed.tree) <= len(case.lengths) + len(set(drawn))
    assert inside > cases / 4, "depths inside edges must matter in many of the cases"


def test_observations_of_one_place_add_up_and_the_root_s_are_left_out() -> None:
    once = PrefixTree.from_observations([-1, 0], [0, 5], [(1, 2, 3.0)])
    twice = PrefixTree.from_observations([-1, 0], [0, 5], [(1, 2, 1.0), (1, 2, 2.0)])
    assert once.tree.weights.tolist() == twice.tree.weights.tolist() == [0, 3, 0]
    assert once.nodes.tolist() == [0, 1, 1]
    assert once.within.tolist() == [0, 2, 5]
    assert once.tree.parents.tolist() == [-1, 0, 1]
    with_root = PrefixTree.from_observations([-1, 0], [0, 5], [(1, 2, 3.0), (0, 0, 7.0)])
    assert with_root.tree.weights.tolist() == [0, 3, 0]


def test_networkx_there_and_back() -> None:
    rng = np.random.default_rng(8)
    tree = PrefixTree(random_parents(60, rng), [0, *rng.integers(1, 9, 59)], rng.random(60))
    names = {node: f"node {node}" for node in range(60)}
    back, labels = from_networkx(nx.relabel_nodes(to_networkx(tree), names))
    assert labels[0] == "node 0"
    order = [int(str(label).split()[1]) for label in labels]
    assert back.weights.tolist() == tree.weights[order].tolist()
    assert back.depths.tolist() == tree.depths[order].tolist()
    above = [order[parent] for parent in back.parents[1:]]
    assert above == tree.parents[order[1:]].tolist()
    assert sorted(order) == list(range(60))


@pytest.mark.parametrize(
    ("parents", "shape"),
    [
        ([-1], TreeShape.CHAIN),
        ([-1, 0, 1, 2], TreeShape.CHAIN),
        ([-1, 0, 0], TreeShape.STAR),
        ([-1, 0, 1, 2, 2, 3, 5, 2], TreeShape.STAR),
        ([-1, 0, 1, 2, 1, 2, 4], TreeShape.COMB),
        ([-1, 0, 0, 1, 1, 3, 3, 2], TreeShape.COMB),
        ([-1, 0, 0, 1, 1, 2, 2], TreeShape.GENERAL),
        ([-1, 0, 1, 1, 2, 2, 3, 3], TreeShape.GENERAL),
    ],
)
def test_shapes(parents: list[int], shape: TreeShape) -> None:
    nodes = len(parents)
    assert classify(PrefixTree(parents, [0] + [1] * (nodes - 1), [1] * nodes)) is shape


def graph_of(*edges: tuple[str, str], length: object = 1) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_edges_from(edges, length=length)
    return graph


def from_weights(*weights: float) -> PrefixTree:
    nodes = len(weights)
    return PrefixTree([-1] + [0] * (nodes - 1), [0] + [1] * (nodes - 1), weights)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_weights(0, math.nan), r"weights\[1\]: got nan; need a finite number >= 0; "),
        (lambda: from_weights(0, 1, -1), r"weights\[2\]: got -1.0; need a finite number >= 0; "),
        (lambda: from_weights(math.inf, 1), r"weights\[0\]: got inf; need a finite number >= 0; "),
        (lambda: from_weights(0, None), r"weights: got dtype object; need real numbers; "),
        (lambda: from_weights(0, "a"), r"weights: got dtype <U21; need real numbers; "),
        (
            lambda: PrefixTree([-1, 0, 1, 2], [0] + [2**62] * 3, [0] * 4),
            r"lengths: got 4611686018427387904; need at most 9007199254740992 tokens",
        ),
        (
            lambda: PrefixTree([-1, 0, 1, 2], [0] + [2**52] * 3, [0] * 4),
            r"depth of node 3: got 13510798882111488; need at most 9007199254740992 tokens",
        ),
        (
            lambda: PrefixTree(range(-1, 3_000), [0] + [2**53] * 3_000, [0] * 3_001),
            r"depth of node 2: got 18014398509481984; need at most ",
        ),
        (lambda: tree_recompute(from_weights(1e308, 1e308), []), r"weights: got a sum of inf "),
        (lambda: place_tree(from_weights(1e308, 1e308), 1), r"weights: got a sum of inf "),
        (lambda: place_tree_priced(from_weights(1e308, 1e308), 1), r"weights: got a sum of inf "),
        (lambda: price_bound(from_weights(1e308, 1e308), 1), r"weights: got a sum of inf "),
        (lambda: split_budget(from_weights(1e308, 1e308), 1), r"weights: got a sum of 1e\+308 "),
        (lambda: PrefixTree([-1], [0], [[1.0]]), r"weights: got shape \(1, 1\); need "),
        (lambda: PrefixTree([], [], []), r"parents\[0\]: got no node; need -1, the root; "),
        (lambda: PrefixTree([0, 0], [0, 1], [0, 0]), r"parents\[0\]: got 0; need -1, the root; "),
        (lambda: PrefixTree([-1, -1], [0, 1], [0, 0]), r"parents\[1\]: got -1; need one root, "),
        (
            lambda: PrefixTree([-1, 2, 0], [0, 1, 1], [0, 0, 0]),
            r"parents\[1\]: got 2; need a parent before its child; ",
        ),
        (
            lambda: PrefixTree([-1, 2, 1], [0, 1, 1], [0, 0, 0]),
            r"parents\[1\]: got 2; need no cycle; ",
        ),
        (lambda: PrefixTree([-1, 1], [0, 1], [0, 0]), r"parents\[1\]: got 1; need no cycle; "),
        (lambda: PrefixTree([-1, 7], [0, 1], [0, 0]), r"parents\[1\]: got 7; need 0 <= parent < 2"),
        (lambda: PrefixTree([-1, -3], [0, 1], [0, 0]), r"parents\[1\]: got -3; need 0 <= parent"),
        (lambda: PrefixTree([-1, 0.5], [0, 1], [0, 0]), r"parents: got dtype float64; need whole"),
        (lambda: PrefixTree([-1, 0], [0], [0, 0]), r"lengths: got 1 for 2 parents; need one for "),
        (lambda: PrefixTree([-1, 0], [0, 1], [0]), r"weights: got 1 for 2 parents; need one for "),
        (lambda: PrefixTree([-1, 0], [0, 0], [0, 0]), r"lengths\[1\]: got 0; need a whole number "),
        (lambda: PrefixTree([-1, 0], [2, 1], [0, 0]), r"lengths\[0\]: got 2; need 0; "),
        (
            lambda: tree_recompute(from_weights(0, 1), [(2, 1)]),
            r"states: got \(2, 1\); need a node",
        ),
        (lambda: tree_recompute(from_weights(0, 1), [(1, 2)]), r"states: got \(1, 2\); need 1 <= "),
        (lambda: tree_recompute(from_weights(0, 1), [(1, 0)]), r"states: got \(1, 0\); need 1 <= "),
        (lambda: tree_recompute(from_weights(0, 1), [(1, 0.5)]), r"states: got float64 of shape"),
        (lambda: tree_recompute(from_weights(0, 1), [3]), r"states: got int64 of shape \(1,\); "),
        (
            lambda: PrefixTree.from_observations([-1, 0], [0, 3], [(1, 4, 1.0)]),
            r"observations: got \(1, 4\); need 1 <= depth <= 3",
        ),
        (
            lambda: PrefixTree.from_observations([-1, 0], [0, 3], [(1, 3, -1.0)]),
            r"weights\[0\]: got -1.0; need a finite number >= 0; ",
        ),
        (lambda: from_networkx(nx.Graph([(0, 1)])), r"graph: got undirected edges; need "),
        (
            lambda: from_networkx(nx.DiGraph()),
            r"graph: got 0 nodes without a parent; need one root",
        ),
        (
            lambda: from_networkx(graph_of(("a", "b"), ("c", "d"))),
            r"graph: got 2 nodes without a parent; need one root; ",
        ),
        (
            lambda: from_networkx(graph_of(("a", "b"), ("a", "c"), ("b", "c"))),
            r"graph: got 2 parents of 'c'; need one parent a node; ",
        ),
        (
            lambda: from_networkx(graph_of(("a", "b"), ("c", "d"), ("d", "c"))),
            r"graph: got a cycle above '[cd]'; need no cycle; ",
        ),
        (
            lambda: from_networkx(nx.DiGraph([("a", "b")])),
            r"edge: got \('a', 'b'\); need the attribute 'length'; ",
        ),
        (lambda: from_networkx(graph_of(("a", "b"), length=0)), r"lengths\[1\]: got 0; need "),
        (lambda: from_networkx(graph_of(("a", "b"), length=2.5)), r"lengths: got dtype float64"),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
