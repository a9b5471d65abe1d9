"""Live states against a slow version that computes everything from scratch at each question."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from tree_placement.policy.live_states import LiveStates, saving

FIRST_AGE, SHARE_FLOOR, RATE = 16.0, 0.02, 0.3


@dataclass
class SlowState:
    share: float
    last: int


class SlowStates:
    """A tree of fixed nodes of which some hold a state; nothing is kept that can be computed."""

    def __init__(self, parents: list[int], depths: list[int]) -> None:
        self.parents, self.depths = parents, depths
        self.live: dict[int, SlowState] = {}
        self.now = 0

    def above(self, node: int) -> int | None:
        node = self.parents[node]
        while node >= 0 and node not in self.live:
            node = self.parents[node]
        return node if node >= 0 else None

    def below(self, node: int) -> list[int]:
        return [other for other in self.live if other != node and self.above(other) == node]

    def path(self, node: int) -> list[int]:
        """Return the live states from a node upwards, itself included."""
        found = []
        current: int | None = node if node in self.live else self.above(node)
        while current is not None:
            found.append(current)
            current = self.above(current)
        return found

    def longest_path(self, node: int) -> list[int]:
        through = [path for path in map(self.path, self.live) if node in path]
        return min(through, key=lambda path: (-len(path), path[0]))

    def value(self, node: int) -> float:
        above = self.above(node)
        gap = float(self.depths[node] - (self.depths[above] if above is not None else 0))
        state = self.live[node]
        return gap * (state.share + SHARE_FLOOR) / (self.now - state.last + FIRST_AGE)

    def order(self) -> list[int]:
        return sorted(self.live, key=lambda node: (self.value(node), node))

    def add(self, node: int, share: float) -> None:
        self.live[node] = SlowState(share, self.now)

    def remove(self, node: int) -> None:
        heir = self.above(node)
        state = self.live.pop(node)
        if heir is not None:
            inheriting = self.live[heir]
            passes = (self.now - inheriting.last + FIRST_AGE) / (self.now - state.last + FIRST_AGE)
            inheriting.share = min(inheriting.share + state.share * min(passes, 1.0), 1.0)

    def touch(self, node: int, served: bool) -> None:
        state = self.live[node]
        state.last = self.now
        state.share += (served - state.share) * RATE


def random_tree(draw: random.Random, nodes: int) -> SlowStates:
    parents = [draw.randrange(-1, node) for node in range(nodes)]
    depths: list[int] = []
    for parent in parents:
        depths.append((depths[parent] if parent >= 0 else 0) + 64 * draw.randrange(1, 20))
    return SlowStates(parents, depths)


@pytest.mark.parametrize("seed", range(20))
def test_every_operation_agrees_with_the_slow_version(seed: int) -> None:
    draw = random.Random(seed)
    slow, states = random_tree(draw, nodes=60), LiveStates()
    for _ in range(400):
        node = draw.randrange(60)
        kind = draw.choice(("add", "add", "remove", "pass"))
        if kind == "add" and node not in slow.live:
            share = draw.choice((0.0, 0.25, draw.random()))
            slow.add(node, share)
            above, below = slow.above(node), slow.below(node)
            states.add(node, slow.depths[node], share, above, below)
        elif kind == "remove" and node in slow.live:
            slow.remove(node)
            states.remove(node)
        elif kind == "pass":
            slow.now += 1
            states.advance()
            for position, state in enumerate(slow.path(node)):
                slow.touch(state, served=position == 0)
                states.touch(state, served=position == 0)
        assert list(states.order()) == slow.order()
        assert len(states) == len(slow.live)
        assert [other in states for other in range(60)] == [
            other in slow.live for other in range(60)
        ]
        for live in slow.live:
            assert states.value(live) == slow.value(live)
            assert states.longest_path(live) == slow.longest_path(live)


def test_a_state_left_out_of_below_would_be_seen() -> None:
    """The control: with a wrong neighbour the slow version's order is another one."""
    slow, states = SlowStates([-1, 0, 1], [640, 1280, 1344]), LiveStates()
    for node in (0, 2):
        slow.add(node, 0.0)
        states.add(node, slow.depths[node], 0.0, slow.above(node), slow.below(node))
    slow.add(1, 0.0)
    states.add(1, slow.depths[1], 0.0, above=0, below=[])
    assert slow.order() == [2, 0, 1]
    assert list(states.order()) != slow.order()


def test_no_state_is_in_no_order() -> None:
    assert list(LiveStates().order()) == []


def test_equal_values_leave_in_order_of_their_ids() -> None:
    states = LiveStates()
    for state in (7, 3, 5):
        states.add(state, 64, 0.5, None, [])
    assert list(states.order()) == [3, 5, 7]


def test_a_used_state_outlives_a_passed_one_and_a_passed_one_an_untouched_one() -> None:
    states = LiveStates()
    for state in (1, 2, 3):
        states.add(state, 640, 0.5, None, [])
    states.advance()
    states.touch(1, served=True)
    states.touch(2, served=False)
    assert list(states.order())[-1] == 1
    for _ in range(200):
        states.advance()
    states.touch(2, served=False)
    assert next(states.order()) == 3


def test_thousands_of_states_come_and_go() -> None:
    states = LiveStates()
    for round_ in range(3):
        for state in range(5000):
            states.add(state + 10_000 * round_, 64 * (state + 1), 0.0, None, [])
        assert len(states) == 5000
        for state in range(5000):
            states.remove(state + 10_000 * round_)
    assert len(states) == 0


def test_saving_by_hand() -> None:
    assert saving(640.0, 0.48, 4.0) == pytest.approx(640 * 0.5 / 20)
    assert saving(640.0, 0.0, 0.0) == pytest.approx(640 * 0.02 / 16)
