"""Single cases on SGLang's fixtures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from cache_checks import check
from cache_fixtures import CacheHarness
from cache_prompts import computed, harness_of, pending, prompts_along, serve, tokens_of
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType

from sglang_sparse import component
from sglang_sparse.planner import path_parts


def test_every_slot_in_use_skips_optional_states_and_goes_on() -> None:
    """Two rows, eight slots: a running request takes a slot back from what is only pending."""
    harness = harness_of(rows=2, slots=8)
    for round_ in range(6):
        both = [
            computed(harness, 2 * round_ + row, tokens_of(100, seed=3 * round_ + row))
            for row in range(2)
        ]
        assert harness.slots.available_size() + harness.cache.mamba_evictable_size() == 0
        for running in both:
            harness.publish(running)
            check(harness)
        for running in both:
            harness.finish(running)
            check(harness)
    counters = harness.cache.counters
    assert counters.skipped_no_slot > 0
    assert counters.revoked > 0
    assert counters.captured == (
        counters.published + counters.superseded + counters.revoked + counters.discarded
    )


def test_with_every_state_locked_eviction_looks_at_each_once() -> None:
    harness = harness_of(rows=2, slots=40)
    locks = []
    for name in range(4):
        tokens = tokens_of(100, seed=name)
        serve(harness, name, tokens)
        for node, _ in list(harness.walk()):
            locks.append(harness.cache.lock(node.id))
    live = len(harness.states())
    looked = count_calls(harness.cache.components[ComponentType.MAMBA], "may_go")
    assert live >= 8
    assert harness.evict(5, 0).mamba_num_evicted == 0
    assert len(looked) == live
    assert len(harness.states()) == live
    for lock in locks:
        harness.cache.unlock(lock)
    looked.clear()
    assert harness.evict(5, 0).mamba_num_evicted == 5
    assert 5 <= len(looked) <= live
    check(harness)


def count_calls(owner: Any, name: str) -> list[Any]:
    """Record the calls of a method from now on."""
    calls: list[Any] = []
    method = getattr(owner, name)

    def recorded(argument: Any) -> Any:
        calls.append(argument)
        return method(argument)

    setattr(owner, name, recorded)
    return calls


@pytest.mark.parametrize("length", range(1, 9))
def test_a_prompt_of_less_than_a_step_keeps_no_state(length: int) -> None:
    harness = harness_of()
    assert serve(harness, 1, tokens_of(length)) == 0
    assert len(harness.states()) == length // 8
    assert serve(harness, 2, tokens_of(length)) == 0


@pytest.mark.parametrize("length", [9, 60, 63, 64, 65, 100])
def test_the_same_prompt_again_resumes_from_its_last_grid_depth(length: int) -> None:
    harness = harness_of()
    serve(harness, 1, tokens_of(length))
    assert serve(harness, 2, tokens_of(length)) == (length - 1) // 8 * 8


def test_a_prompt_that_ends_inside_another_resumes_from_the_deepest_state_on_it() -> None:
    harness = harness_of()
    whole = tokens_of(200)
    serve(harness, 1, whole)
    states = harness.states()
    live = {state.identity for state in states}
    numbers = harness.identities.along(harness.identities.root(None), whole)
    depths = [depth for depth, number in enumerate(numbers, 1) if number in live]
    assert len(depths) >= 3
    for length in range(1, 201, 3):
        expected = max((depth for depth in depths if depth <= length), default=0)
        assert harness.look(whole[:length], None, None).device_prefix_len == expected
        assert harness.states() == states


def test_prompts_that_leave_at_different_depths_keep_all_states() -> None:
    harness = harness_of(states_per_path=20, rows=3, slots=60)
    trunk = tokens_of(160)
    serve(harness, 1, trunk)
    for name, depth in enumerate((48, 120, 80, 16), 2):
        before = harness.states()
        serve(harness, name, trunk[:depth] + tokens_of(40, seed=name))
        assert before <= harness.states()
        assert harness.look(trunk[:depth], None, None).device_prefix_len == depth


def test_no_path_keeps_more_states_than_its_budget() -> None:
    """The harness looks at every path after each publication."""
    harness = harness_of(states_per_path=3, rows=3, slots=60)
    for name, prompt in enumerate(prompts_along(tokens_of(160))):
        serve(harness, name, prompt)
    assert harness.cache.counters.trimmed > 0
    assert len(harness.states()) > 3


def test_states_that_requests_held_go_when_they_are_released() -> None:
    harness = harness_of(states_per_path=2, rows=5, slots=40)
    whole = tokens_of(240)
    held = []
    for name, length in enumerate((60, 100, 140, 180, 220)):
        running = computed(harness, name, whole[:length])
        harness.publish(running)
        held.append(running)
    assert len(harness.states()) > 2
    for running in held:
        harness.finish(running)
        check(harness)
    assert len(harness.states()) == 2


def test_statistics_belong_to_a_namespace() -> None:
    harness = harness_of(states_per_path=3, rows=1, slots=60)
    for name in range(30):
        prompt = tokens_of(80) + tokens_of(40, seed=name)
        running = harness.start(name, prompt, "taught")
        harness.extend(running, len(prompt))
        harness.publish(running)
        harness.finish(running)
    planned = {}
    for namespace in ("taught", "untaught", "untaught too"):
        running = harness.start(100, tokens_of(203, seed=99), namespace)
        harness.extend(running, 203)
        planned[namespace] = [capture.depth for capture in pending(harness, running)]
        harness.abort(running)
    assert planned["untaught"] == planned["untaught too"] != planned["taught"]


def test_namespaces_share_nothing() -> None:
    harness = harness_of()
    tokens = tokens_of(100)
    running = harness.start(1, tokens, "one")
    harness.extend(running, 100)
    harness.publish(running)
    harness.finish(running)
    assert harness.look(tokens, "one", None).device_prefix_len == 96
    assert harness.look(tokens, "two", None).full_kv_hit_length == 0
    assert harness.look(tokens, None, None).full_kv_hit_length == 0
    check(harness)


def test_an_aborted_request_publishes_nothing_and_frees_its_slots() -> None:
    harness = harness_of()
    running = computed(harness, 1, tokens_of(100))
    assert pending(harness, running)
    harness.abort(running)
    assert not harness.states()
    assert harness.slots.available_size() == harness.slots.size
    check(harness)


def known_since(harness: CacheHarness, tokens: Sequence[int]) -> dict[int, int]:
    """Return the states that the policy knows of on a prompt's path: depths, and since which
    prompt."""
    states = harness.cache.planner.policy._states
    result = harness.look(tokens, None, None)
    node = harness.cache.tree_core.node_by_id(result.last_visited_node_id)
    rows = states.on_path(path_parts(node))
    return {states.depth(row): int(states._columns.written[row]) for row in rows}


@pytest.mark.parametrize("told", [True, False], ids=["", "control: not told"])
def test_states_known_on_dropped_tokens_are_forgotten(
    told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes to the same place later is other content, and is not credited with them."""
    harness = harness_of(rows=3, slots=60)
    if not told:
        monkeypatch.setattr(harness.cache.planner, "tokens_gone", lambda leaf: None)
        monkeypatch.setattr(component, "replace", lambda record, cut: record)
    trunk, dropped = tokens_of(96), tokens_of(100, seed=1)
    serve(harness, 1, trunk)
    serve(harness, 2, trunk + dropped)
    assert max(known_since(harness, trunk + dropped)) > 96
    harness.evict(harness.slots.size, 96)
    assert harness.look(trunk + dropped, None, None).full_kv_hit_length == 96
    other = trunk + tokens_of(100, seed=2)
    serve(harness, 3, other)
    deeper = [since for depth, since in known_since(harness, other).items() if depth > 96]
    assert deeper
    assert (min(deeper) < 3) is not told


def test_a_branch_that_was_cut_is_not_continued() -> None:
    """Statistics of a subtree are of one content; a prompt that goes on from a whole leaf adds to
    it."""
    harness = harness_of(rows=3, slots=60)
    trunk, dropped = tokens_of(96), tokens_of(100, seed=1)
    serve(harness, 1, trunk)
    serve(harness, 2, trunk + dropped)
    assert branches(harness) == {1}
    harness.evict(0, 96)
    assert branches(harness) == {1}
    serve(harness, 3, trunk + tokens_of(100, seed=2))
    assert branches(harness) == {1, 2}


def branches(harness: CacheHarness) -> set[int]:
    records = [component.branch_of(node) for node, _ in harness.walk()]
    return {record.id for record in records if record is not None}


@pytest.mark.parametrize("times", [1, 2], ids=["", "control: looks twice"])
def test_with_every_slot_of_running_requests_nothing_spins(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No slot is free and every state is locked: an eviction ends after one look at each, the
    requests go on, and once they end everything can go again."""
    harness = harness_of(rows=2, slots=8)
    running = [computed(harness, row, tokens_of(100, seed=row)) for row in range(2)]
    for each in running:
        harness.publish(each)
    states = harness.cache.components[ComponentType.MAMBA]
    assert harness.slots.available_size() + harness.cache.mamba_evictable_size() == 0
    live = len(harness.states())
    assert live == 2
    order = harness.cache.planner.eviction_order
    monkeypatch.setattr(
        harness.cache.planner, "eviction_order", lambda: (s for s in order() for _ in range(times))
    )
    looked = count_calls(states, "may_go")
    assert harness.evict(3, 0).mamba_num_evicted == 0
    assert (len(looked) == live) is (times == 1)
    looked.clear()
    assert states.least_valuable() is None
    assert (len(looked) == live) is (times == 1)
    for each in running:
        assert harness.decode(each, range(12))
        check(harness)
    for each in running:
        harness.finish(each)
        check(harness)
    left = len(harness.states())
    assert left >= live
    assert harness.evict(8, 0).mamba_num_evicted == left
