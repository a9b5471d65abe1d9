"""The policy: its promises about every plan, and its values against the slow version."""

from __future__ import annotations

from itertools import permutations
from math import isfinite

import pytest
from driven_policy import DrivenPolicy, Prompt, driven
from slow_states import Unlearning

from tree_placement.policy import (
    Extent,
    PathPart,
    PlannedState,
    PolicySettings,
    SparsePolicy,
    Visit,
    next_to_admit,
)
from tree_placement.policy.columns import StateKind
from tree_placement.policy.hazard import UNKNOWN_ORIGIN, HazardModel, NewState
from tree_placement.policy.losses import LossReason, RefusedState

GRID, TAIL = 64, 192
NOWHERE = Visit("", (), 0, 0, 0)
SEEDS = pytest.mark.parametrize("seed", range(8))


def depths_of(planned: tuple[PlannedState, ...]) -> list[int]:
    return [each.depth for each in planned]


def floor(depth: int, start: int) -> int:
    return start + (depth - start) // GRID * GRID


def anything(state: int) -> bool:
    return True


@pytest.fixture
def untaught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is learned, so that the slow version knows the rates."""
    monkeypatch.setattr(HazardModel, "observe", Unlearning.observe)


# What holds of every plan


def given_depths(run: DrivenPolicy, prompt: Prompt, extent: Extent) -> tuple[list[int], set[int]]:
    """The given depths in the order of their importance, and those where a state is missed."""
    limit, start = run.policy.settings.states_per_path, extent.start
    overlap = prompt.visit.overlap
    wanted = [extent.length, min(overlap, extent.length), extent.length - 1, extent.length - TAIL]
    useful = dict.fromkeys(floor(each, start) for each in wanted if each - start >= GRID)
    known = run.slow.on_path(prompt.position(overlap))
    missed = {floor(depth, start) for _, depth in known if depth - start >= GRID}
    return list(useful)[:limit], missed


@SEEDS
def test_what_holds_of_every_plan(seed: int) -> None:
    run = driven(seed)
    limit = run.policy.settings.states_per_path
    for _ in range(40):
        prompt = run.prompt()
        planned = run.plan(prompt)
        extent, depths = run.extent(prompt), depths_of(planned)
        run.publish(prompt, planned)
        if extent.length - extent.start < GRID:
            assert planned == ()
            continue
        assert depths == sorted(set(depths))
        assert all(extent.start < depth <= extent.length for depth in depths)
        assert all((depth - extent.start) % GRID == 0 for depth in depths)
        assert depths[-1] == floor(extent.length, extent.start)
        assert all(isfinite(each.rate) and each.rate >= 0.0 for each in planned)
        assert all(0.0 < each.new.share <= 1.0 for each in planned)
        given, missed = given_depths(run, prompt, extent)
        assert set(given) <= set(depths)
        assert len(depths) <= limit
        forecast = set(depths) - set(given) - missed
        assert len(forecast) <= max(limit - len(run.live_on(prompt)) - len(given), 0)


@SEEDS
def test_a_plan_fits_the_fullest_path_above_where_the_prompt_left(seed: int) -> None:
    run = driven(seed, slots=40, states_per_path=5)
    for _ in range(40):
        prompt = run.prompt()
        planned = run.plan(prompt)
        extent = run.extent(prompt)
        given, missed = given_depths(run, prompt, extent)
        overlap = prompt.visit.overlap
        live = run.live_on(prompt)
        fullest = len(run.slow.longest_path(live[0])) if live else 0
        free = max(5 - fullest - sum(depth <= overlap for depth in given), 0)
        shared = [each for each in depths_of(planned) if each <= overlap]
        assert len(set(shared) - set(given) - missed) <= free
        run.publish(prompt, planned)


@SEEDS
def test_no_path_has_more_states_than_its_budget(seed: int) -> None:
    run = driven(seed, slots=40)
    for _ in range(40):
        run.serve(1)
        longest = max(len(run.slow.live_on_path(each)) for each in run.slow.live.values())
        assert longest <= run.policy.settings.states_per_path
        assert len(run.slow.live) <= run.slots


@pytest.mark.parametrize("length", [500, 1000, 4097, 6000, 8191])
def test_the_tail_is_planned_while_nothing_is_known(length: int) -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=2))
    tail, end = policy.plan(NOWHERE, UNKNOWN_ORIGIN, Extent(0, length, full=False))
    assert (tail.depth, end.depth) == ((length - TAIL) // GRID * GRID, length // GRID * GRID)
    assert (tail.new.kind, end.new.kind) == (StateKind.TAIL, StateKind.END)


def test_a_forecast_fills_the_budget_and_less_of_it_where_slots_are_dear() -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=8))
    for overlap in range(200, 6000, 50):
        visit = Visit("", (PathPart(overlap, overlap),), overlap, 6000, 1)
        policy.observe(visit, 6000)
    free = policy.plan(NOWHERE, UNKNOWN_ORIGIN, Extent(0, 6000, full=False))
    kinds = [each.new.kind for each in free]
    assert sorted(kinds) == [StateKind.END, StateKind.TAIL, *[StateKind.FORECAST] * 6]
    state = NewState(StateKind.END, 1.0, UNKNOWN_ORIGIN, 1)
    policy.add(1, (PathPart(7_000, 640),), PlannedState(640, 1.0, state))
    cheap = policy.plan(NOWHERE, UNKNOWN_ORIGIN, Extent(0, 6000, full=True))
    policy.add(2, (PathPart(7_001, 100_000),), PlannedState(100_000, 1.0, state))
    policy.remove(1)
    dear = policy.plan(NOWHERE, UNKNOWN_ORIGIN, Extent(0, 6000, full=True))
    assert len(free) == 8 > len(cheap) > len(dear) == 2


def test_a_missed_state_is_planned_again_for_the_prompt_that_would_have_used_it() -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=4))
    state = PlannedState(640, 0.0, NewState(StateKind.FORECAST, 0.5, UNKNOWN_ORIGIN, 1))
    path = (PathPart(1, 2000),)
    visit = Visit("", path, 1500, 2000, 1)
    before = policy.plan(visit, policy.observe(visit, 2000), Extent(0, 2000, full=False))
    policy.publish(path, [state])
    after = policy.plan(visit, policy.observe(visit, 2000), Extent(0, 2000, full=False))
    assert 640 not in depths_of(before)
    assert 640 in depths_of(after)
    for overlap, start in ((639, 0), (1500, 640)):
        elsewhere = visit._replace(path=(PathPart(1, overlap),), overlap=overlap)
        extent = Extent(start, 2000, full=False)
        assert 640 not in depths_of(policy.plan(elsewhere, UNKNOWN_ORIGIN, extent))


# Values


@SEEDS
@pytest.mark.usefixtures("untaught")
def test_values_and_their_order_are_those_of_the_slow_version(seed: int) -> None:
    run = driven(seed)
    for _ in range(20):
        run.serve(1)
        values = {state: run.policy.value(state) for state in run.slow.live}
        assert values == pytest.approx(run.slow.values())
        order = list(run.policy.eviction_order())
        assert order == sorted(values, key=lambda state: (values[state], state))


@SEEDS
@pytest.mark.usefixtures("untaught")
def test_a_rate_is_the_states_own_and_what_would_fall_to_it(seed: int) -> None:
    run = driven(seed)
    fallen = 0
    for _ in range(40):
        prompt = run.prompt()
        planned = run.plan(prompt)
        for each in planned:
            position = prompt.position(each.depth)
            known = each.depth <= prompt.visit.overlap and position in run.slow.known
            own = run.slow.rate(position) if known else run.slow.rate_of_new(each.new.share)
            spill = run.slow.spill(position) if each.depth <= prompt.visit.overlap else 0.0
            assert each.rate == pytest.approx(own + spill)
            fallen += spill > 0.0
        run.publish(prompt, planned)
    assert fallen > 0


@SEEDS
@pytest.mark.usefixtures("untaught")
def test_a_state_is_worth_a_slot_where_it_saves_more_than_what_it_displaces(seed: int) -> None:
    run = driven(seed)
    values = run.slow.values()
    answers = []
    for _ in range(200):
        above, gap = run.draw.randrange(5000), run.draw.randrange(1, 6400)
        rate, displaced = run.draw.random() / 20, run.draw.choice(sorted(values))
        new = NewState(StateKind.END, 1.0, UNKNOWN_ORIGIN, 1)
        planned = PlannedState(above + gap, rate, new)
        answers.append(run.policy.is_worth_a_slot(planned, above, displaced))
        assert answers[-1] is (gap * rate > values[displaced])
    assert len(set(answers)) == 2


@SEEDS
@pytest.mark.usefixtures("untaught")
def test_a_path_with_too_many_states_gives_up_the_least_valuable(seed: int) -> None:
    """A policy of a smaller budget takes over the states of one of a larger."""
    run = driven(seed, slots=40, states_per_path=8)
    small = DrivenPolicy(SparsePolicy(PolicySettings(states_per_path=2)), 40, seed)
    object.__setattr__(run.policy, "settings", small.policy.settings)
    values = run.slow.values()
    given_up = 0
    for state in run.slow.live:
        path = run.slow.longest_path(state)
        free = path[1:] if len(path) > 2 else []
        for may_go in (anything, lambda each: each % 2 == 0):
            surplus = run.policy.surplus(state, may_go)
            candidates = [each for each in free if may_go(each)]
            assert (surplus is not None) is bool(candidates)
            if surplus is not None:
                assert surplus in candidates
                assert values[surplus] == pytest.approx(min(values[each] for each in candidates))
                given_up += 1
    assert given_up > 5
    assert run.policy.surplus(10_000, anything) is None, "gone"


@SEEDS
def test_slots_go_to_the_states_that_save_most_each_after_those_before(seed: int) -> None:
    """Against every order in which they could be admitted."""
    run = driven(seed)
    new = NewState(StateKind.END, 1.0, UNKNOWN_ORIGIN, 1)
    for _ in range(20):
        count = run.draw.randrange(1, 5)
        waiting = [
            PlannedState(depth, run.draw.random(), new)
            for depth in run.draw.sample(range(64, 2048, 64), count)
        ]

        def savings(order: tuple[PlannedState, ...]) -> list[float]:
            saved, taken = [], [0]
            for each in order:
                above = max(depth for depth in taken if depth < each.depth)
                saved.append(each.rate * (each.depth - above))
                taken.append(each.depth)
            return saved

        admitted: list[PlannedState] = []
        left = list(waiting)
        while left:
            best, above = next_to_admit(left, [each.depth for each in admitted], 0)
            admitted.append(best)
            left.remove(best)
            assert best.rate * (best.depth - above) == savings(tuple(admitted))[-1]
        assert savings(tuple(admitted)) == max(savings(order) for order in permutations(waiting))


def test_states_come_and_go() -> None:
    policy = SparsePolicy(PolicySettings())
    path = (PathPart(1, 1000),)
    policy.add(1, path, policy.unplanned("", 640))
    policy.add(2, path, policy.unplanned("", 704))
    assert policy.is_live(1)
    assert list(policy.eviction_order()) == [2, 1], "the smaller gap first"
    policy.remove(1)
    assert not policy.is_live(1)
    policy.clear_states()
    assert list(policy.eviction_order()) == []


@pytest.mark.parametrize("path", [(), (PathPart(1, 639),)])
def test_a_state_is_not_added_where_its_path_does_not_reach(path: tuple[PathPart, ...]) -> None:
    policy = SparsePolicy(PolicySettings())
    with pytest.raises(
        ValueError, match=r"path of a new state: got .*; need a path of at least 640"
    ):
        policy.add(1, path, policy.unplanned("", 640))
    policy.publish(path, [policy.unplanned("", 640)])
    assert not policy.is_live(1)


PATH = (PathPart(1, 1_000),)
BAD_CALLS = {
    "id of a new state: got 5": lambda p: p.add(5, PATH, p.unplanned("", 704)),
    "position of a new state: got that of live state 5": lambda p: p.add(
        6, PATH, p.unplanned("", 640)
    ),
    "state to remove: got 7": lambda p: p.remove(7),
    "state: got 7": lambda p: p.value(7),
    "path: got no part": lambda p: p.cut(()),
    "path: got no": lambda p: p.lose((), RefusedState(640, LossReason.NOT_WORTH)),
    "length: got 0": lambda p: p.observe(NOWHERE, 0),
    "overlap: got -1": lambda p: p.observe(NOWHERE._replace(overlap=-1), 100),
    "turn: got -1": lambda p: p.observe(NOWHERE._replace(turn=-1), 100),
    "earlier_length: got 0": lambda p: p.observe(NOWHERE._replace(path=PATH, overlap=9), 100),
}


@pytest.mark.parametrize("message", BAD_CALLS)
def test_a_bad_call_is_refused_and_changes_nothing(message: str) -> None:
    """The policy goes on as one that was never called so."""

    def later(is_called: bool) -> list[object]:
        policy = SparsePolicy(PolicySettings())
        policy.observe(Visit("", PATH, 640, 900, 1), 1_000)
        policy.add(5, PATH, policy.unplanned("", 640))
        if is_called:
            with pytest.raises(ValueError, match=f"^{message}.*; need .*; "):
                BAD_CALLS[message](policy)
        found: list[object] = [policy.missed(PATH, 0), list(policy.eviction_order())]
        for overlap in range(600, 1_000, 20):
            origin = policy.observe(Visit("", PATH, overlap, 1_000, 2), 1_200)
            found += [origin, policy.value(5), policy.statistics()]
        return found

    assert later(True) == later(False)


@pytest.mark.parametrize("name", ["states_per_path", "grid", "namespaces", "missed_states", "bin"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_settings_out_of_their_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=r"got .*; need a whole number >= 1"):
        PolicySettings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("grid", [1, 64, 512])
@pytest.mark.parametrize("states_per_path", [1, 16])
def test_a_policy_of_any_settings_warms_up(grid: int, states_per_path: int) -> None:
    policy = SparsePolicy(PolicySettings(grid=grid, states_per_path=states_per_path))
    policy.warm_up()
    assert list(policy.eviction_order()) == [], "on another policy than itself"
