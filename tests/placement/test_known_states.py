"""Known and live states against a slow version that computes everything from scratch."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from slow_states import FIRST_AGE, FIRST_RATE, Forest, Position, SlowStates, Unlearning

from tree_placement.policy import PathPart
from tree_placement.policy.columns import StateKind
from tree_placement.policy.hazard import UNKNOWN_ORIGIN, HazardModel, NewState
from tree_placement.policy.known_states import KnownStates

MANY = 10_000


def new(share: float = 1.0, kind: StateKind = StateKind.END, model: int = 0) -> NewState:
    return NewState(kind, share, UNKNOWN_ORIGIN, model)


def states_of(missed: int = MANY, hazard: HazardModel | None = None) -> KnownStates:
    hazard = hazard if hazard is not None else Unlearning()
    for model in range(3):
        hazard.begin(model)
    return KnownStates(hazard, missed)


class Both:
    """The same random calls to both versions."""

    def __init__(self, seed: int, missed: int = MANY) -> None:
        self.draw = random.Random(seed)
        self.forest = Forest(self.draw, branches=12, steps=8)
        self.slow = SlowStates(self.forest, missed)
        self.states = states_of(missed)
        self.ids = iter(self.draw.sample(range(MANY), MANY))

    def step(self) -> None:
        draw = self.draw
        kind = draw.choice(("pass", "know", "add", "add", "remove", "cut"))
        position = self.forest.position()
        if kind == "pass":
            self.slow.pass_by(position)
            self.states.advance()
            self.states.pass_by(self.states.on_path(self.forest.path(position)))
        elif kind == "know":
            self.know(position, draw.choice((1.0, 0.25, draw.random() + 0.01)))
        elif kind == "add" and position not in self.slow.live.values():
            self.add(next(self.ids), position)
        elif kind == "remove" and self.slow.live:
            gone = draw.choice(sorted(self.slow.live))
            del self.slow.live[gone]
            self.states.remove(gone)
        elif kind == "cut" and draw.random() < 0.2:
            self.slow.cut(*position)
            self.states.cut(*position)

    def know(self, position: Position, share: float) -> None:
        self.slow.know(position, share)
        self.states.know(self.forest.path(position), position[1], new(share))

    def add(self, state: int, position: Position) -> None:
        self.know(position, 1.0)
        self.states.add(state, self.forest.path(position), position[1], new())
        self.slow.live[state] = position

    def row(self, position: Position) -> int:
        row = self.states.row_at(self.forest.path(position), position[1])
        assert row is not None
        return row

    def compare(self) -> None:
        slow, states = self.slow, self.states
        for position in slow.known:
            assert states.rate(self.row(position)) == pytest.approx(slow.rate(position))
        values = {state: states.value(state) for state in slow.live}
        assert values == pytest.approx(slow.values())
        assert list(states.order()) == sorted(values, key=lambda state: (values[state], state))
        assert states.least_value() == min(values.values(), default=0.0)
        position = self.forest.position()
        path = self.forest.path(position)
        on = [self.row(each) for each in slow.on_path(position)]
        assert states.on_path(path) == on
        assert [states.depth(row) for row in on] == [depth for _, depth in slow.on_path(position)]
        if position not in slow.live.values():
            spill = states.spill(path, position[1])
            assert spill == pytest.approx(slow.spill(position))
        for state in slow.live:
            assert states.value(state) == values[state]
            assert states.links.longest_path(state) == slow.longest_path(state)
        assert (states.row_at(path, position[1]) is None) is (position not in slow.known)


@pytest.mark.parametrize("missed", [MANY, 8, 1])
@pytest.mark.parametrize("seed", range(8))
def test_every_operation_agrees_with_the_slow_version(seed: int, missed: int) -> None:
    both = Both(seed, missed)
    for step in range(200):
        both.step()
        if step % 10 == 0:
            both.compare()
    assert len(both.slow.live) > 3


def unserved(both: Both) -> None:
    """What a removed state served falls to no one."""
    gone = next(state for state in both.slow.live if both.slow.above(both.slow.live[state]))
    row = both.row(both.slow.live.pop(gone))
    both.states.remove(gone)
    both.states._columns.nearest[row] = -1
    both.states._rated_at = -1.0


def unlinked(both: Both) -> None:
    """A state that comes between two is not told of the one below it."""
    for _ in range(MANY):
        position = both.forest.position()
        below = both.slow.below(position)
        if below and position not in both.slow.live.values():
            both.know(position, 1.0)
            path = both.forest.path(position)
            both.states.add(MANY, path, position[1], new())
            for each in below:
                both.states.links._below[MANY].discard(each)
                both.states.links._link(each, both.slow.above(position))
            both.slow.live[MANY] = position
            return


def unpassed(both: Both) -> None:
    """A prompt ages what it does not pass, and passes what it does not say."""
    both.slow.pass_by(next(iter(both.slow.known)))
    both.states.advance()


@pytest.mark.parametrize("wrong", [unserved, unlinked, unpassed])
def test_another_account_would_be_seen(wrong: Callable[[Both], None]) -> None:
    both = Both(seed=1)
    for _ in range(250):
        both.step()
    both.compare()
    wrong(both)
    with pytest.raises(AssertionError):
        both.compare()


@pytest.mark.parametrize("seed", range(4))
def test_values_follow_rates_that_are_learned(seed: int) -> None:
    both = Both(seed)
    both.states = states_of(hazard=HazardModel())
    untaught = 0
    for step in range(300):
        both.step()
        if step % 10:
            continue
        rates = {each: both.states.rate(both.row(each)) for each in both.slow.known}
        untaught += rates == pytest.approx({each: both.slow.rate(each) for each in rates})
        served = both.slow.served()
        for state in both.slow.live:
            expected = both.slow.gap(state) * sum(rates[each] for each in served[state])
            assert both.states.value(state) == pytest.approx(expected)
    assert untaught < 15, "the weights moved"


@pytest.mark.parametrize("seed", range(6))
def test_looking_changes_nothing(seed: int) -> None:
    """A twin that is never asked between two steps answers the same to the bit."""
    looked_at, twin = (Both(seed, missed=10) for _ in range(2))
    for step in range(300):
        for each in (looked_at, twin):
            each.step()
        looked_at.states.forecast()
        looked_at.states.least_value()
        if step % 20 == 0:
            assert list(looked_at.states.order()) == list(twin.states.order())
            values = {each.states.value(s) for each in (looked_at, twin) for s in each.slow.live}
            assert len(values) <= len(twin.slow.live)


def test_of_equal_values_the_lowest_id_goes_first() -> None:
    states = states_of()
    for state in (7, 3, 5):
        states.add(state, (PathPart(state, 64),), 64, new())
    assert list(states.order()) == [3, 5, 7]


def test_an_order_stays_that_of_its_first_call() -> None:
    states = states_of()
    for state, depth in ((1, 64), (2, 640), (3, 704)):
        states.add(state, (PathPart(0, 704),), depth, new())
    states.add(4, (PathPart(5, 320),), 320, new())
    before = list(states.order())
    assert before[:2] == [1, 3]
    order = states.order()
    states_seen = [next(order)]
    states.remove(1)
    states.remove(2)
    assert list(states.order()) == [4, 3], "what stays serves more now"
    assert states_seen + list(order) == before


def test_a_state_that_lives_is_not_added_again() -> None:
    states = states_of()
    path = (PathPart(1, 640),)
    states.add(5, path, 640, new())
    before = states.value(5)
    with pytest.raises(ValueError, match="position of a new state: got that of live state 5"):
        states.add(6, path, 640, new())
    other = states.know(path, 704, new())
    with pytest.raises(ValueError, match="id of a new state: got 5"):
        states.add(5, path, 704, new())
    assert states.value(5) == pytest.approx(before + 640 * states.rate(other))
    states.remove(5)
    states.add(6, path, 640, new())
    assert list(states.order()) == [6]


def test_clearing_forgets_all_but_what_was_learned() -> None:
    states = states_of(hazard=HazardModel())
    rates = []
    for _ in range(2):
        for state in range(300):
            row = states.know((PathPart(state, 64),), 64, new())
            states.add(state, (PathPart(state, 64),), 64, new())
        rates.append(states.rate(row))
        for _ in range(40):
            states.advance()
            states.pass_by(states.on_path((PathPart(299, 64),)))
        states.clear()
        assert not list(states.order())
        assert not states.on_path((PathPart(299, 64),))
    assert rates[0] == pytest.approx((1 / FIRST_AGE + FIRST_RATE) / 2)
    assert rates[1] != rates[0]


def test_a_forgotten_model_leaves_its_live_states_and_no_other() -> None:
    states = states_of()
    for branch in range(8):
        path, of_model = (PathPart(branch, 64),), new(model=1 + branch % 2)
        states.know(path, 64, of_model)
        if branch < 4:
            states.add(branch, path, 64, of_model)
    states.forget_model(1)
    known = [branch for branch in range(8) if states.on_path((PathPart(branch, 64),))]
    assert known == [0, 1, 2, 3, 5, 7]
    assert sorted(states.order()) == [0, 1, 2, 3]
    states.remove(0)
    assert states.on_path((PathPart(0, 64),)), "missed, as any other that lived"


def test_memory_is_bounded_where_models_are_forgotten() -> None:
    """Fewer states than may be missed: none is forgotten because it is old."""
    states = states_of(missed=1000)
    for round_ in range(2000):
        for branch in range(3):
            states.know((PathPart(3 * round_ + branch, 64),), 64, new(model=1))
        states.forget_model(1)
    assert len(states._by_age) == len(states._branches) == 0
    assert len(states._positions) == 256
