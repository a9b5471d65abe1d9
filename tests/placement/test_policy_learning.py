"""The policy over time: what it learns, what it keeps apart, that it repeats, and its memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from driven_policy import driven

from tree_placement.policy import (
    Extent,
    PathPart,
    PolicySettings,
    SparsePolicy,
    Visit,
)
from tree_placement.policy.hazard import UNKNOWN_ORIGIN

GRID, TAIL = 64, 192


def nowhere(namespace: str = "") -> Visit:
    return Visit(namespace, (), 0, 0, 0)


def leaving(namespace: str, branch: int = 1, overlap: int = 2000) -> Visit:
    return Visit(namespace, (PathPart(branch, overlap),), overlap, 6000, 1)


def depths_for_new(policy: SparsePolicy, namespace: str = "", length: int = 6000) -> list[int]:
    extent = Extent(0, length, full=False)
    return [each.depth for each in policy.plan(nowhere(namespace), UNKNOWN_ORIGIN, extent)]


# Namespaces


def test_overlaps_are_learned_in_each_namespace_apart() -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=3))
    untouched = depths_for_new(policy, "b")
    for _ in range(100):
        policy.observe(leaving("a"), 6000)
    assert depths_for_new(policy, "b") == untouched
    assert 2000 // GRID * GRID in depths_for_new(policy, "a")


def rates_for_new(policy: SparsePolicy, namespace: str) -> list[float]:
    extent = Extent(0, 500, full=False)
    return [each.rate for each in policy.plan(nowhere(namespace), UNKNOWN_ORIGIN, extent)]


def teach(policy: SparsePolicy, namespace: str, first: int = 0, prompts: int = 80) -> None:
    """Keep states of documents that no prompt returns to."""
    for branch in range(first, first + prompts):
        visit = nowhere(namespace)
        origin = policy.observe(visit, 500)
        planned = policy.plan(visit, origin, Extent(0, 500, full=False))
        policy.publish((PathPart(branch, 500),), planned)


def test_hazards_are_learned_in_each_namespace_apart() -> None:
    policy = SparsePolicy(PolicySettings())
    untaught = rates_for_new(policy, "b")
    teach(policy, "a")
    assert rates_for_new(policy, "b") == untaught
    assert max(rates_for_new(policy, "a")) < 0.5 * min(untaught), "none returned"


def test_the_namespace_unused_longest_is_forgotten_and_nobody_inherits() -> None:
    policy = SparsePolicy(PolicySettings(states_per_path=3, namespaces=3))
    unknown = depths_for_new(policy, "a"), rates_for_new(policy, "a")
    for first, namespace in enumerate("abc"):
        for _ in range(50):
            policy.observe(leaving(namespace), 6000)
        teach(policy, namespace, first=1000 * (first + 1))
    policy.observe(leaving("a"), 6000)
    assert (depths_for_new(policy, "d"), rates_for_new(policy, "d")) == unknown, "the row of b"
    assert depths_for_new(policy, "a") != unknown[0]
    assert rates_for_new(policy, "a") != unknown[1]
    assert (depths_for_new(policy, "b"), rates_for_new(policy, "b")) == unknown


def test_live_states_of_a_forgotten_namespace_stay_and_teach_no_other() -> None:
    policy = SparsePolicy(PolicySettings(namespaces=1))
    path = (PathPart(1, 500),)
    end = policy.plan(nowhere("a"), UNKNOWN_ORIGIN, Extent(0, 500, full=False))[-1]
    policy.add(1, path, end)
    untaught = rates_for_new(policy, "b")
    assert list(policy.eviction_order()) == [1]
    for _ in range(80):
        policy.observe(nowhere("b"), 500)
    assert policy.value(1) > 0.0
    assert rates_for_new(policy, "b") == untaught, "b has no state that could teach it"


# It repeats

ANSWERS = """
from driven_policy import driven
run = driven(seed=5, slots=8)
for _ in range(60):
    prompt = run.prompt()
    planned = run.plan(prompt)
    run.publish(prompt, planned)
    print(planned, list(run.policy.eviction_order()), sum(map(run.policy.value, run.slow.live)))
"""


def answers(hash_seed: str) -> str:
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    environment["PYTHONPATH"] = os.pathsep.join([str(here), str(here.parents[1])])
    run = [sys.executable, "-c", ANSWERS]
    return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout


def test_every_process_gives_the_same_answers() -> None:
    """To the last bit of every rate and value, whatever strings and sets hash to."""
    first = answers("1")
    assert first.count("PlannedState") > 100
    assert answers("2") == first


def test_other_prompts_get_other_answers() -> None:
    """The control: the order of eviction does depend on what was served."""
    orders = {tuple(driven(seed, slots=8).policy.eviction_order()) for seed in range(4)}
    assert len(orders) == 4


# Bounded memory


def test_memory_is_bounded_over_fifty_thousand_prompts() -> None:
    """Each adds a branch; some go on from earlier ones, in more namespaces than are kept."""
    settings = PolicySettings(namespaces=8, missed_states=100, subtrees=32)
    policy, draw = SparsePolicy(settings), random.Random(3)
    live: list[int] = []
    rows = branches = 0
    for branch in range(50_000):
        above = (PathPart(draw.randrange(branch), 400),) if branch and draw.random() < 0.3 else ()
        namespace = str(draw.randrange(12))
        visit = Visit(namespace, above, 400 if above else 0, 500 if above else 0, len(above))
        origin = policy.observe(visit, 900)
        if branch % 5 == 0:
            planned = policy.plan(visit, origin, Extent(visit.overlap, 900, full=False))
        path = (PathPart(branch, 900), *above)
        policy.publish(path, planned)
        policy.add(branch, path, planned[-1])
        live.append(branch)
        if len(live) > 20:
            policy.remove(live.pop(draw.randrange(len(live))))
        rows = max(rows, len(policy._states._positions))
        branches = max(branches, len(policy._states._branches))
    known = settings.missed_states + 21
    assert rows == 256, "the first power of two that has room"
    assert branches <= 2 * (known + 1)
    assert len(policy._states._by_age) <= known
    assert len(policy._states._losses) <= known
    namespaces = list(policy._namespaces._by_name.values())
    assert len(namespaces) == settings.namespaces
    assert len(policy._hazard._weights) <= 2 * (settings.namespaces + 1)
    assert all(len(each.overlaps) <= settings.subtrees for each in namespaces)


# Placement learned from documents whose prompts leave at two kinds of place

DOCUMENTS, KNOWN, PROMPTS, STATES, NEAR = 40, 20, 8, 4, 192


def document(draw: np.random.Generator) -> tuple[int, list[int]]:
    """Return a document's length, and where its prompts leave it in the order they come."""
    length = int(draw.integers(4_000, 9_001))
    centers = draw.permutation([1_500, length - 900] * (PROMPTS // 2)).tolist()
    return length, [center + int(draw.integers(-64, 65)) for center in centers]


def near(depths: list[int], overlap: int) -> bool:
    """Whether a prompt that leaves at `overlap` finds a state at most `NEAR` above."""
    return any(0 <= overlap - depth <= NEAR for depth in depths)


def share_near(placement: Callable[[int], list[int]], seed: int) -> float:
    """Return in how many documents the first prompt to leave finds a state near."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(DOCUMENTS):
        length, overlaps = document(draw)
        found.append(near(placement(length), overlaps[0]))
    return sum(found[KNOWN:]) / len(found[KNOWN:])


def learned_share_near(seed: int) -> float:
    """The same for the policy, which sees every prompt after it was placed for."""
    draw = np.random.default_rng(seed)
    policy = SparsePolicy(PolicySettings(states_per_path=STATES))
    found = []
    for branch in range(DOCUMENTS):
        length, overlaps = document(draw)
        origin = policy.observe(nowhere(), length)
        planned = policy.plan(nowhere(), origin, Extent(0, length, full=False))
        assert len(planned) <= STATES
        policy.publish((PathPart(branch, length),), planned)
        found.append(near([each.depth for each in planned], overlaps[0]))
        for overlap in overlaps:
            visit = Visit("", (PathPart(branch, overlap),), overlap, length, 1)
            policy.observe(visit, overlap + 40)
    return sum(found[KNOWN:]) / len(found[KNOWN:])


def block(length: int) -> list[int]:
    """The first states at multiples of 1,024 tokens."""
    return list(range(1_024, length, 1_024))[:STATES]


def balanced(length: int) -> list[int]:
    """States that divide the document evenly."""
    return [length * part // (STATES + 1) // GRID * GRID for part in range(1, STATES + 1)]


def tail_and_junctions(length: int) -> list[int]:
    """End and tail; no prompt has left the document yet, so it has no junction."""
    return [length // GRID * GRID, (length - TAIL) // GRID * GRID]


@pytest.mark.parametrize("seed", range(10))
def test_first_prompts_to_leave_a_new_document_find_a_state_near(seed: int) -> None:
    assert learned_share_near(seed) >= 0.9


@pytest.mark.parametrize("placement", [block, balanced, tail_and_junctions])
def test_placements_that_do_not_learn_leave_them_far(placement: Callable[[int], list[int]]) -> None:
    assert max(share_near(placement, seed) for seed in range(10)) <= 0.5


def test_a_plan_that_outlives_its_namespace_teaches_no_other() -> None:
    """Another namespace has the row by the time that it is published; row 0 is of such states."""
    policy = SparsePolicy(PolicySettings(namespaces=2))
    visit = nowhere("a")
    planned = policy.plan(visit, policy.observe(visit, 1_000), Extent(0, 1_000, full=False))
    path = (PathPart(1, 1_000),)
    for name in ("b", "c"):
        policy.observe(nowhere(name), 1_000)
    policy.publish(path, planned)
    policy.add(1, path, planned[-1])
    columns = policy._states._columns
    assert set(columns.model[columns.known].tolist()) == {0}
    again = policy.plan(nowhere("c"), policy.observe(nowhere("c"), 1_000), Extent(0, 1_000, False))
    policy.publish((PathPart(2, 1_000),), again)
    assert set(columns.model[columns.known].tolist()) == {0, again[0].new.model}
