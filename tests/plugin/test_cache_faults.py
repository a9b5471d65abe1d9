"""Faults on SGLang's fixtures: the checks must catch them, or the cache live with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cache_checks import check
from cache_fixtures import CacheHarness, Running
from cache_prompts import computed, harness_of, pending, prompts_along, serve, tokens_of
from sglang.srt.mem_cache.common import checkpoint_kv_cache

from sglang_sparse.request_plans import PendingCapture


def publish_and_check(harness: CacheHarness, running: Running) -> None:
    harness.publish(running)
    check(harness)


def deeper(capture: PendingCapture) -> PendingCapture:
    return capture._replace(planned=capture.planned._replace(depth=capture.depth + 8))


def shallower(capture: PendingCapture) -> PendingCapture:
    return capture._replace(planned=capture.planned._replace(depth=capture.depth - 8))


def one_page_deeper(capture: PendingCapture) -> PendingCapture:
    return capture._replace(planned=capture.planned._replace(depth=capture.depth + 4))


@pytest.mark.parametrize("moved", [deeper, shallower, one_page_deeper])
def test_a_state_attached_elsewhere_is_caught(
    moved: Callable[[PendingCapture], PendingCapture],
) -> None:
    harness = harness_of()
    running = computed(harness, 1, tokens_of(100))
    captures = pending(harness, running)
    captures[0] = moved(next(capture for capture in captures if capture.depth > 8))
    with pytest.raises(AssertionError, match=r"identity|captured there|owned"):
        publish_and_check(harness, running)


def test_a_state_of_another_prompt_is_caught() -> None:
    harness = harness_of()
    running = computed(harness, 1, tokens_of(100))
    other = computed(harness, 2, tokens_of(100, seed=1))
    first, second = pending(harness, running)[0], pending(harness, other)[0]
    pending(harness, running)[0] = first._replace(slot=second.slot)
    pending(harness, other)[0] = second._replace(slot=first.slot)
    harness.publish(running)
    with pytest.raises(AssertionError, match="identity"):
        check(harness)


def test_a_leaked_slot_is_caught() -> None:
    harness = harness_of()
    serve(harness, 1, tokens_of(100))
    harness.slots.alloc(1)
    with pytest.raises(AssertionError, match="owned 0 times"):
        check(harness)


def test_a_slot_attached_twice_is_caught() -> None:
    harness = harness_of()
    running = computed(harness, 1, tokens_of(100))
    captures = pending(harness, running)
    slot = int(captures[0].slot)
    captures[1] = captures[1]._replace(slot=captures[0].slot)
    harness.publish(running)
    with pytest.raises(AssertionError, match="identity"):
        check(harness)
    report = harness.cache.check_integrity(harness.requests())
    assert f"slot {slot}: owned 2 times (tree)" in report.violations


def test_a_path_beyond_its_budget_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_of(states_per_path=3, rows=3, slots=60)
    monkeypatch.setattr(harness.cache.planner, "surplus", lambda *_: None)
    serve(harness, 0, tokens_of(160))
    with pytest.raises(AssertionError, match="states on a path"):
        serve(harness, 1, tokens_of(160) + tokens_of(200, seed=1))


def test_a_capture_that_no_pass_wrote_is_given_back() -> None:
    harness = harness_of()
    running = computed(harness, 1, tokens_of(100))
    captures = pending(harness, running)
    captures[0] = captures[0]._replace(written=False)
    unwritten = running.identities[captures[0].depth - 1]
    checkpoint_kv_cache(running.req, harness.cache)
    harness.published.update(running.identities)
    check(harness)
    assert harness.cache.counters.discarded == 1
    assert unwritten not in {state.identity for state in harness.states()}
    assert len(harness.states()) == len(captures)


@pytest.mark.parametrize(
    "method", ["observe", "plan", "add", "remove", "surplus", "is_worth_a_slot", "eviction_order"]
)
def test_a_policy_that_fails_costs_states_and_nothing_else(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few slots and a small budget: every one of its methods is called."""
    harness = harness_of(states_per_path=3, rows=2, slots=8)
    calls = []

    def fail(*_: object) -> None:
        calls.append(method)
        raise RuntimeError("the policy failed")

    monkeypatch.setattr(harness.cache.planner.policy, method, fail)
    for name, prompt in enumerate(prompts_along(tokens_of(160))):
        running = harness.start(name, prompt)
        assert harness.extend(running, len(prompt))
        checkpoint_kv_cache(running.req, harness.cache)
        harness.finish(running)
        harness.cache.sanity_check()
    assert calls
    tree = harness.cache.check_integrity(harness.requests())
    assert tree.free + tree.tree == tree.slots
