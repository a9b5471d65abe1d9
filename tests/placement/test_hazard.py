"""The hazard: the gradient that it follows, and what it learns of a process that is known."""

from __future__ import annotations

import random
from collections import defaultdict
from math import exp, log

import numpy as np
import pytest
from slow_states import FIRST_RATE, Unlearning

from tree_placement.policy import PathPart, _hazard_kernels
from tree_placement.policy.columns import Columns, StateKind
from tree_placement.policy.hazard import (
    BATCH,
    NO_STATE,
    UNKNOWN_ORIGIN,
    HazardModel,
    NewState,
    describe,
)
from tree_placement.policy.known_states import KnownStates

MODELS = 3
ODDS = slice(_hazard_kernels._KIND_USES)


def records_of(odds: float) -> np.ndarray:
    """Records with these odds for the steady hazard everywhere, and of no use of any kind."""
    records = np.zeros((MODELS, _hazard_kernels.RECORDS))
    records[:, ODDS] = odds
    return records


AGING, STEADY = records_of(-1e9), records_of(1e9)


def random_new(draw: random.Random) -> NewState:
    length = draw.randrange(1, 200_000)
    origin = describe(
        turn=draw.randrange(12),
        length=length,
        overlap=draw.randrange(length + 1),
        return_time=draw.choice((None, draw.expovariate(0.01))),
        served_by=draw.randrange(NO_STATE + 1),
    )
    share = draw.choice((1.0, draw.uniform(1e-3, 1.0)))
    return NewState(draw.choice(list(StateKind)), share, origin, draw.randrange(MODELS))


def random_states(seed: int) -> tuple[random.Random, KnownStates]:
    """States of three namespaces that prompts passed and used at random."""
    draw = random.Random(seed)
    hazard = HazardModel()
    for model in range(MODELS):
        hazard.begin(model)
    states = KnownStates(hazard, missed=100)
    for _ in range(300):
        path = (PathPart(draw.randrange(6), 64 * draw.randrange(1, 9)),)
        states.advance()
        states.pass_by(states.on_path(path))
        states.know(path, path[0].depth, random_new(draw))
    return draw, states


def rates_of(
    columns: Columns, now: float, weights: np.ndarray, records: np.ndarray = AGING
) -> np.ndarray:
    """The hazards of all known states, from nothing but what is known of each now."""
    none = np.zeros_like(columns.scale)
    columns = columns._replace(scale=none, steady=none.copy())
    rates = np.zeros(columns.known.size)
    _hazard_kernels.scale(columns, np.flatnonzero(columns.known), now, weights, records)
    model = HazardModel()
    model.rates(columns, now, rates, served=np.zeros(columns.known.size))
    return rates[columns.known]


def loss(columns: Columns, now: float, uses: list[int], weights: np.ndarray) -> float:
    """The negative logarithm of a Poisson likelihood: of these uses in one batch of prompts, were
    all hazards aging."""
    rates = np.zeros(columns.known.size)
    rates[columns.known] = rates_of(columns, now, weights)
    return BATCH * float(rates.sum()) - sum(log(rates[row]) for row in uses)


def gradient_of(columns: Columns, now: float, uses: list[int], weights: np.ndarray) -> np.ndarray:
    gradient, records = np.zeros_like(weights), records_of(0.0)
    for row in uses:
        _hazard_kernels.count_use(columns, row, now, weights, gradient, records)
    _hazard_kernels.count_expected(columns, now, float(BATCH), weights, gradient, records)
    return gradient


@pytest.mark.parametrize("seed", range(4))
def test_learning_follows_the_gradient_of_the_poisson_likelihood(seed: int) -> None:
    draw, states = random_states(seed)
    columns, now = states._columns, states.now
    weights = np.array(
        [[draw.uniform(-0.2, 0.2) for _ in range(_hazard_kernels.WEIGHTS)] for _ in range(MODELS)]
    )
    known = np.flatnonzero(columns.known).tolist()
    uses = [draw.choice(known) for _ in range(5)]
    gradient = gradient_of(columns, now, uses, weights)
    twice = gradient_of(columns, now, uses * 2, weights)
    touched = np.argwhere(gradient != 0.0).tolist()
    assert len(touched) > 50
    caught = 0
    for model, place in draw.sample(touched, 40):
        moved = [weights.copy(), weights.copy()]
        moved[0][model, place] -= 1e-4
        moved[1][model, place] += 1e-4
        less, more = (loss(columns, now, uses, each) for each in moved)
        slope = (more - less) / 2e-4
        assert gradient[model, place] == pytest.approx(slope, rel=1e-5, abs=1e-7)
        caught += twice[model, place] != pytest.approx(slope, rel=1e-5, abs=1e-7)
    assert caught > 0, "counting each use twice would be seen"


@pytest.mark.parametrize("seed", range(4))
def test_rates_are_of_what_is_known_now_at_each_batch_and_of_the_last_one_between(
    seed: int,
) -> None:
    _, states = random_states(seed)
    columns, stale = states._columns, 0
    known = np.flatnonzero(columns.known)
    for _ in range(5 * BATCH):
        states.advance()
        states.pass_by(())
        rates = np.array([states.rate(row) for row in known.tolist()])
        model = states._hazard
        exact = rates_of(columns, states.now, model._weights, model._records)
        if states.now % BATCH == 0:
            np.testing.assert_allclose(rates, exact)
        else:
            stale += not np.allclose(rates, exact)
            age = states.now - columns.passed[known] + _hazard_kernels.FIRST_AGE
            np.testing.assert_allclose(rates, columns.scale[known] / age + columns.steady[known])
    assert stale > 0, "only their ages move between"


def test_each_use_teaches_one_weight_of_each_family_in_its_own_namespace() -> None:
    _, states = random_states(0)
    columns = states._columns
    for row in np.flatnonzero(columns.known).tolist():
        gradient = np.zeros((MODELS, _hazard_kernels.WEIGHTS))
        weights, records = np.zeros_like(gradient), records_of(0.0)
        _hazard_kernels.count_use(columns, row, states.now, weights, gradient, records)
        models, places = gradient.nonzero()
        assert set(models.tolist()) == {int(columns.model[row])}
        assert len(places) == _hazard_kernels.FAMILIES
        assert set(gradient[models, places].tolist()) == {-1.0}


@pytest.mark.parametrize("seed", range(4))
def test_without_weights_the_aging_hazard_is_the_share_over_the_age(seed: int) -> None:
    _, states = random_states(seed)
    columns, now = states._columns, states.now
    age, prior = (now - columns.passed)[columns.known], columns.prior[columns.known]
    expected = np.exp(prior / (1 + columns.uses[columns.known])) / (age + 16)
    untaught = rates_of(columns, now, np.zeros((MODELS, _hazard_kernels.WEIGHTS)))
    np.testing.assert_allclose(untaught, np.maximum(expected, exp(-14)), rtol=1e-12)
    taught = rates_of(columns, now, np.full((MODELS, _hazard_kernels.WEIGHTS), 0.01))
    raised = expected * exp(0.01 * _hazard_kernels.FAMILIES)
    np.testing.assert_allclose(taught, np.clip(raised, exp(-14), 1), rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_steady_hazard_is_the_mean_rate_of_uses(seed: int) -> None:
    draw, states = random_states(seed)
    columns, now, weights = states._columns, states.now, np.zeros((MODELS, _hazard_kernels.WEIGHTS))
    known = columns.known
    uses, life = columns.uses[known], now - columns.written[known]
    rates = rates_of(columns, now, weights, STEADY)
    mean = np.exp(columns.prior[known]) * FIRST_RATE
    np.testing.assert_allclose(rates, (uses + 0.5) / (life + 0.5 / mean), rtol=1e-12)
    odds = draw.uniform(-2.0, 2.0)
    share = 1.0 / (1.0 + exp(-odds))
    mixed = rates_of(columns, now, weights, records_of(odds))
    aging = rates_of(columns, now, weights, AGING)
    np.testing.assert_allclose(mixed, (1 - share) * aging + share * rates, rtol=1e-12)
    assert not np.allclose(mixed, aging)


@pytest.mark.parametrize("seed", range(4))
def test_the_odds_are_those_of_two_poisson_likelihoods(seed: int) -> None:
    draw, states = random_states(seed)
    columns, now = states._columns, states.now
    weights, gradient = (np.zeros((MODELS, _hazard_kernels.WEIGHTS)) for _ in range(2))
    records, known = records_of(0.0), np.flatnonzero(columns.known)
    used = [draw.choice(known.tolist()) for _ in range(5)]
    _hazard_kernels.count_expected(columns, now, float(BATCH), weights, gradient, records)
    kinds = records.copy()
    for row in used:
        _hazard_kernels.count_use(columns, row, now, weights, gradient, kinds)
    every = np.zeros(known.size, dtype=bool)
    for model in range(MODELS):
        for kind in StateKind:
            mine = (columns.model[known] == model) & (columns.kind[known] == kind)
            exposure = BATCH * float(np.exp(columns.prior[known][mine]).sum())
            told = kinds[model, _hazard_kernels._KIND_EXPOSURE + kind]
            assert told == pytest.approx(exposure)
            uses = sum(mine[known.tolist().index(row)] for row in used)
            assert kinds[model, _hazard_kernels._KIND_USES + kind] == uses
            every |= mine
    assert every.all()
    aging = rates_of(columns, now, weights, AGING)
    steady = rates_of(columns, now, weights, STEADY)
    assert records[:, ODDS].sum() == pytest.approx(BATCH * float((aging - steady).sum()))


class Steady:
    """Documents of different popularity, that never changes."""

    def __init__(self, model: HazardModel) -> None:
        draw, self.model = random.Random(1), model
        model.begin(0)
        self.states = KnownStates(model, missed=400)
        documents = range(30)
        for document in documents:
            new = NewState(StateKind.END, 1.0, UNKNOWN_ORIGIN, 0)
            self.states.know((PathPart(document, 640),), 640, new)
        popularity = [1.0 / (1 + document) for document in documents]
        self.truth = [each / sum(popularity) for each in popularity]
        for document in draw.choices(documents, popularity, k=2_000):
            self.states.advance()
            self.states.pass_by(self.states.on_path((PathPart(document, 640),)))

    def relative_errors(self) -> list[float]:
        rows = [self.states.row_at((PathPart(each, 640),), 640) for each in range(30)]
        rates = [self.states.rate(row) for row in rows if row is not None]
        return [abs(log(rate / true)) for rate, true in zip(rates, self.truth, strict=True)]


def test_traffic_that_does_not_change_is_foreseen_by_mean_rates() -> None:
    steady = Steady(HazardModel())
    errors = steady.relative_errors()
    assert np.mean(errors) < 0.2
    many = _hazard_kernels._odds_of(int(StateKind.END), 40)
    assert steady.model._records[0, many] == _hazard_kernels.LARGEST_ODDS


def test_an_aging_hazard_alone_foresees_it_less() -> None:
    steady = np.mean(Steady(HazardModel()).relative_errors())
    aging = Steady(HazardModel())
    aging.model._records[:, ODDS] = -1e9
    aging.model.scale(aging.states._columns, np.arange(30), aging.states.now)
    aging.states.advance()
    assert np.mean(aging.relative_errors()) > 2 * steady


def test_a_return_at_most_once_is_not_taken_for_a_mean_rate() -> None:
    model = HazardModel()
    learned(model)
    once = _hazard_kernels._odds_of(int(StateKind.END), 1)
    assert model._records[0, once] < -2.0


def test_no_weight_makes_a_rate_that_is_not_one() -> None:
    _, states = random_states(0)
    for weight in (-1e6, 1e6):
        weights = np.full((MODELS, _hazard_kernels.WEIGHTS), weight)
        rates = rates_of(states._columns, states.now, weights, records_of(0.0))
        assert rates.min() > 0.0
        assert rates.max() <= 1.0


def test_a_namespace_begun_anew_has_learned_nothing() -> None:
    model = HazardModel()
    for row in range(MODELS):
        model.begin(row)
    states = KnownStates(model, missed=10)
    new = [NewState(StateKind.END, 1.0, UNKNOWN_ORIGIN, row) for row in range(MODELS)]
    states.know((PathPart(0, 64),), 64, new[1])
    for _ in range(20 * BATCH):
        states.advance()
        states.pass_by(states.on_path((PathPart(0, 64),)))
    rates = [model.rate_of_new(each) for each in new]
    untaught = (1 / 16 + FIRST_RATE) / 2
    assert rates[0] == rates[2] == pytest.approx(untaught)
    assert rates[1] != pytest.approx(untaught)
    model.begin(1)
    assert model.rate_of_new(new[1]) == pytest.approx(untaught)


# A known process: half the ends are returned to once, after a geometric time; tails never are

DEPTH = {StateKind.END: 640, StateKind.TAIL: 448}
RETURNING, MEAN_RETURN, PROMPTS = 0.5, 40, 6_000


class Ledger:
    """Uses that were expected, and that came, by kind, whether used before, and age."""

    def __init__(self) -> None:
        self.expected: defaultdict[tuple[StateKind, bool, int], float] = defaultdict(float)
        self.came: defaultdict[tuple[StateKind, bool, int], int] = defaultdict(int)


def learned(model: HazardModel) -> Ledger:
    """Run the process; keep account of its last half."""
    draw = random.Random(7)
    model.begin(0)
    states = KnownStates(model, missed=400)
    due: dict[int, int] = {}
    written: dict[tuple[int, StateKind], int] = {}
    returned: set[int] = set()
    ledger = Ledger()
    for now in range(PROMPTS):
        document = due.pop(now, None)
        states.advance()
        account(ledger if now > PROMPTS // 2 else Ledger(), states, written, returned, document)
        if document is not None:
            returned.add(document)
            states.pass_by(states.on_path((PathPart(document, DEPTH[StateKind.END]),)))
            continue
        states.pass_by(())
        for kind, depth in DEPTH.items():
            new = NewState(kind, 1.0, UNKNOWN_ORIGIN, 0)
            states.know((PathPart(now, depth),), depth, new)
            written[now, kind] = now
        written = {each: at for each, at in written.items() if at > now - 150}
        if draw.random() < RETURNING:
            back = now + 1 + int(draw.expovariate(1 / MEAN_RETURN))
            while back in due:
                back += 1
            due[back] = now
    return ledger


def account(
    ledger: Ledger,
    states: KnownStates,
    written: dict[tuple[int, StateKind], int],
    returned: set[int],
    document: int | None,
) -> None:
    for (branch, kind), at in written.items():
        row = states.row_at((PathPart(branch, 0),), DEPTH[kind])
        assert row is not None
        key = kind, branch in returned, int(states.now - at).bit_length()
        ledger.expected[key] += states.rate(row)
        ledger.came[key] += branch == document and kind is StateKind.END


def test_a_known_process_is_learned() -> None:
    ledger = learned(HazardModel())
    ages = [age for kind, used, age in ledger.came if kind is StateKind.END and not used]
    compared = 0
    for age in ages:
        came = ledger.came[StateKind.END, False, age]
        if came >= 100:
            expected = ledger.expected[StateKind.END, False, age]
            assert expected == pytest.approx(came, rel=0.25)
            compared += 1
    assert compared >= 3
    all_came = sum(ledger.came.values())
    assert sum(ledger.expected.values()) == pytest.approx(all_came, rel=0.1)
    for kind, used in ((StateKind.TAIL, False), (StateKind.TAIL, True), (StateKind.END, True)):
        never = sum(v for (k, u, _), v in ledger.expected.items() if (k, u) == (kind, used))
        assert never < 0.1 * all_came


def test_what_does_not_learn_expects_many_more_uses() -> None:
    ledger = learned(Unlearning())
    assert sum(ledger.expected.values()) > 3 * sum(ledger.came.values())
    tails = sum(v for (kind, _, _), v in ledger.expected.items() if kind is StateKind.TAIL)
    assert tails > sum(ledger.came.values())
