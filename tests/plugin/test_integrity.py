"""`check_integrity` against one fault of each kind, put into a cache that was well."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cache_fixtures import CacheHarness
from cache_pools import configurations
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType

from sglang_sparse.integrity import IntegrityReport, check_integrity
from tree_placement.policy.losses import LossReason

LENGTH = 100


@pytest.fixture
def harness() -> CacheHarness:
    """A sparse cache with one prompt in the tree, one decoding, and one with pending captures."""
    cfg = next(cfg for cfg in configurations(rows=3, slots=40) if cfg.page_size == 4)
    made = CacheHarness(cfg, sparse=True)
    for name in range(3):
        running = made.start(name, range(1000 * name, 1000 * name + LENGTH))
        assert made.extend(running, LENGTH)
        if name < 2:
            made.publish(running)
        if name == 0:
            made.finish(running)
    return made


def integrity(harness: CacheHarness) -> IntegrityReport:
    return check_integrity(harness.cache, harness.requests())


def state_nodes(harness: CacheHarness) -> list[Any]:
    return [node for node, _ in harness.walk() if state_of(node).value is not None]


def state_of(node: Any) -> Any:
    return node.component_data[ComponentType.MAMBA]


def test_all_terms_add_up_where_nothing_is_wrong(harness: CacheHarness) -> None:
    report = integrity(harness)
    assert report.holds
    assert report.violations == ()
    assert report.tree == len(harness.states()) > 2
    assert report.running == 2 * 3
    assert report.pending == len(harness.cache._plans[harness.running[2].req].pending) > 0
    assert report.free == harness.slots.available_size()
    assert report.slots == report.free + report.tree + report.running + report.pending == 40
    assert str(report) == (
        f"slots 40 = free {report.free} + tree {report.tree} + running 6 + pending {report.pending}"
    )


def test_it_changes_nothing(harness: CacheHarness) -> None:
    before = harness.states(), harness.slots.free_slots.tolist()
    assert integrity(harness) == integrity(harness)
    assert (harness.states(), harness.slots.free_slots.tolist()) == before


def test_a_leak(harness: CacheHarness) -> None:
    slot = int(harness.slots.alloc(1))
    assert integrity(harness).violations == (f"slot {slot}: owned 0 times (by none)",)


def test_a_request_that_is_not_told_of(harness: CacheHarness) -> None:
    report = check_integrity(harness.cache, [harness.running[2].req])
    assert len(report.violations) == 3
    assert all("owned 0 times (by none)" in line for line in report.violations)


@pytest.mark.parametrize("owner", ["tree", "running", "pending"])
def test_a_slot_that_is_free_as_well(harness: CacheHarness, owner: str) -> None:
    slots = {
        "tree": int(state_of(state_nodes(harness)[0]).value),
        "running": int(harness.running[1].req.kv.mamba_pool_idx),
        "pending": harness.cache.pending_slot_ids()[0],
    }
    slot = slots[owner]
    harness.slots.free(torch.tensor([slot]))
    assert integrity(harness).violations == (f"slot {slot}: owned 2 times (free, {owner})",)


def test_a_slot_of_the_tree_and_of_a_request(harness: CacheHarness) -> None:
    lost = int(harness.running[1].req.kv.mamba_pool_idx)
    slot = int(state_of(state_nodes(harness)[0]).value)
    harness.running[1].req.kv.mamba_pool_idx = torch.tensor(slot)
    assert set(integrity(harness).violations) == {
        f"slot {lost}: owned 0 times (by none)",
        f"slot {slot}: owned 2 times (tree, running)",
    }


@pytest.mark.parametrize("slot", [0, -1, 41])
def test_a_slot_that_does_not_exist(harness: CacheHarness, slot: int) -> None:
    harness.slots.free(torch.tensor([slot]))
    assert integrity(harness).violations == (f"slot {slot}: outside 1..40",)


def test_a_state_that_the_policy_does_not_know(harness: CacheHarness) -> None:
    node = state_nodes(harness)[0]
    harness.cache.planner.state_gone(node, LossReason.EVICTED)
    assert integrity(harness).violations == (f"state {node.id}: in the tree, unknown",)


def test_a_state_that_only_the_policy_knows(harness: CacheHarness) -> None:
    node = state_nodes(harness)[0]
    slot = int(state_of(node).value)
    state_of(node).value = None
    violations = integrity(harness).violations
    assert f"state {node.id}: known, not in the tree" in violations
    assert f"slot {slot}: owned 0 times (by none)" in violations


def test_a_child_filed_under_a_key_that_is_not_its_own(harness: CacheHarness) -> None:
    root = harness.cache.tree_core.root_node
    key, child = next(iter(root.children.items()))
    root.children[(None, (7, 7, 7, 7))] = root.children.pop(key)
    (violation,) = integrity(harness).violations
    assert violation.startswith(f"node {child.id}: filed under")


def test_a_tree_that_sglang_finds_unsound(harness: CacheHarness) -> None:
    harness.cache.tree_core.component_evictable_size_[ComponentType.MAMBA] += 1
    (violation,) = integrity(harness).violations
    assert violation.startswith("tree: ")
    assert "evictable" in violation


def test_the_cache_keeps_the_last_report(harness: CacheHarness) -> None:
    assert harness.cache.report()["integrity"] is None
    harness.cache.check_integrity(harness.requests())
    assert harness.cache.report()["integrity"]["holds"] is True
    slot = int(harness.slots.alloc(1))
    harness.cache.check_integrity(harness.requests())
    kept = harness.cache.report()["integrity"]
    assert kept["holds"] is False
    assert kept["violations"] == (f"slot {slot}: owned 0 times (by none)",)
