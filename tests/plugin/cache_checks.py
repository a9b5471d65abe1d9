"""What holds of a cache after every step."""

from __future__ import annotations

from typing import Any

from cache_fixtures import CacheHarness
from identities import marks
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType


def check(harness: CacheHarness) -> None:
    """Every state is that of its exact path and depth, was published, and has one owner."""
    harness.cache.sanity_check()
    identity = marks(harness.rows.mamba_pool)
    in_tree = 0
    for node, numbers in harness.walk():
        state = node.component_data[ComponentType.MAMBA].value
        kv = node.component_data[ComponentType.FULL].value.tolist()
        assert [harness.kv_identity[index] for index in kv] == numbers, "KV of other tokens"
        assert harness.published.issuperset(numbers), "never published"
        if state is not None:
            in_tree += 1
            assert identity[int(state)] == numbers[-1], "identity: a state of another place"
    if harness.sparse:
        report = harness.cache.check_integrity(harness.requests())
        assert report.holds, str(report)
        assert report.free + report.tree + report.running + report.pending == report.slots
        assert report.tree == in_tree
    else:
        held = sum(slots_held(request) for request in harness.requests())
        assert harness.slots.available_size() + in_tree + held == harness.slots.size


def slots_held(request: Any) -> int:
    tracking = request.kv.mamba_ping_pong_track_buffer
    return (request.kv.mamba_pool_idx is not None) + (0 if tracking is None else len(tracking))
