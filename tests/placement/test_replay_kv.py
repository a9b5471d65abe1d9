"""The budget of KV, held to a plain radix tree whose oldest leaves go."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from test_replay import BLOCK, GRID, lines_of, random_trace

from tree_placement.policy import PolicySettings, SparsePolicy
from tree_placement.replay import Budget, Request, Served, Trace, replay
from tree_placement.replay.policies import policy_named
from tree_placement.replay.policies.sparse import SparseReplay
from tree_placement.replay.simulator import Simulator
from tree_placement.replay.tree import BlockTree

KV_TOKENS = 160


@dataclass(eq=False)
class Node:
    """A node of a radix tree: `key` are its blocks, with the tokens of the last, unfilled one."""

    key: list[tuple[int, int]]
    used: int
    parent: Node | None = None
    children: dict[tuple[int, int], Node] = field(default_factory=dict)


class RadixTree:
    """Splits nodes where prompts leave them, and drops whole leaves, the oldest first."""

    def __init__(self, tokens: int) -> None:
        self._room = tokens
        self._root = Node([], 0)
        self._now = 0

    def overlap(self, request: Request) -> int:
        """Serve a request: match, evict, insert; return what matched in tokens."""
        self._now += 1
        key = [(block, BLOCK) for block in request.blocks]
        private = request.length - BLOCK * len(key)
        node, matched = self._match(key)
        rest = key[matched:] + ([(-self._now, private)] if private else [])
        tokens = sum(size for _, size in rest)
        while self._tokens() + tokens > self._room:
            leaf = min(self._leaves(), key=lambda leaf: leaf.used)
            assert leaf.parent is not None
            del leaf.parent.children[leaf.key[0]]
        if rest:
            node.children[rest[0]] = Node(rest, self._now, node)
        return matched * BLOCK

    def _match(self, key: list[tuple[int, int]]) -> tuple[Node, int]:
        node, at = self._root, 0
        while at < len(key) and key[at] in node.children:
            child = node.children[key[at]]
            pairs = zip(child.key, key[at:], strict=False)
            same = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
            same = min(len(child.key), len(key) - at) if same is None else same
            if same < len(child.key):
                child = self._split(child, same)
            child.used = self._now
            node, at = child, at + same
        return node, at

    def _split(self, node: Node, at: int) -> Node:
        assert node.parent is not None
        upper = Node(node.key[:at], node.used, node.parent)
        node.parent.children[node.key[0]] = upper
        node.key, node.parent = node.key[at:], upper
        upper.children[node.key[0]] = node
        return upper

    def _nodes(self) -> list[Node]:
        nodes, waiting = [], [self._root]
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            waiting.extend(node.children.values())
        return nodes[1:]

    def _leaves(self) -> list[Node]:
        return [node for node in self._nodes() if not node.children]

    def _tokens(self) -> int:
        return sum(size for node in self._nodes() for _, size in node.key)


def short_trace(seed: int) -> Trace:
    trace = random_trace(seed, requests=120)
    return Trace(BLOCK, tuple(each for each in trace.requests if each.length <= 80))


def served_densely(trace: Trace, kv_tokens: int | None) -> tuple[Served, ...]:
    budget = Budget(grid=GRID, kv_tokens=kv_tokens)
    return replay(trace, policy_named("dense", trace, budget), budget)


@pytest.mark.parametrize("seed", range(20))
def test_overlaps_are_those_of_a_radix_tree(seed: int) -> None:
    trace, tree = short_trace(seed), RadixTree(KV_TOKENS)
    served = served_densely(trace, KV_TOKENS)
    overlaps = [tree.overlap(request) for request in trace.requests]
    assert [each.overlap for each in served] == [
        min(overlap, request.length - 1)
        for overlap, request in zip(overlaps, trace.requests, strict=True)
    ]
    assert [each.overlap for each in served] != [
        each.overlap for each in served_densely(trace, None)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_states_go_with_their_kv_and_no_others(seed: int) -> None:
    served = served_densely(short_trace(seed), KV_TOKENS)
    assert all(each.hit == each.overlap // GRID * GRID for each in served)
    assert any(each.evicted for each in served)


def test_room_for_all_changes_nothing() -> None:
    trace = short_trace(0)
    assert lines_of(served_densely(trace, trace.tokens)) == lines_of(served_densely(trace, None))


def test_a_prompt_without_room_is_refused() -> None:
    trace = Trace(BLOCK, (Request(40, tuple(range(10))),))
    with pytest.raises(ValueError, match="KV: got a prompt of 40 tokens; need at most 39"):
        served_densely(trace, 39)


def test_a_radix_tree_of_another_size_is_seen() -> None:
    trace, tree = short_trace(1), RadixTree(KV_TOKENS + random.Random(1).randrange(40, 80))
    served = served_densely(trace, KV_TOKENS)
    assert [each.overlap for each in served] != [tree.overlap(each) for each in trace.requests]


@pytest.mark.parametrize("seed", range(6))
def test_the_policy_knows_no_state_where_tokens_were_dropped(seed: int) -> None:
    trace = random_trace(seed)
    policy = SparsePolicy(PolicySettings(grid=GRID))
    budget = Budget(slots=4, grid=GRID, kv_tokens=KV_TOKENS)
    simulator = Simulator(trace.block, budget, SparseReplay(policy))
    for request in trace.requests:
        simulator.serve(request)
        held: dict[int, int] = {}
        for segment in simulator.tree._segments.values():
            held[segment.branch] = max(held.get(segment.branch, 0), segment.end)
        served = simulator.cache.segments[0][0]
        held[served.branch] = max(held.get(served.branch, 0), served.end)
        for branch in policy._states._branches:
            assert max(branch.depths, default=0) <= held.get(branch.id, 0)


def test_what_follows_a_cut_is_a_branch_of_its_own() -> None:
    tree = BlockTree(BLOCK)
    ends = [Request(3 * BLOCK, (0, 1, 2)), Request(5 * BLOCK, (0, 1, 2, 3, 4))]
    first, second = (tree.insert(each, tree.match(each)) for each in ends)
    assert first is not None
    assert second is not None
    assert second.branch == first.branch, "it went on from the very end"
    tree.cut(second, second.begin)
    other = Request(4 * BLOCK, (0, 1, 2, 7))
    third = tree.insert(other, tree.match(other))
    assert third is not None
    assert third.branch != first.branch
