"""Every slot has exactly one owner: the proof, term by term."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang_sparse.cache import SparseRadixCache


@dataclass(frozen=True)
class IntegrityReport:
    """Slots by owner, and what is wrong.

    `free + tree + running + pending` is `slots` where all is well. `violations` are sentences.
    """

    slots: int
    free: int
    tree: int
    running: int
    pending: int
    violations: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.violations

    def __str__(self) -> str:
        sum_ = f"free {self.free} + tree {self.tree} + running {self.running}"
        head = f"slots {self.slots} = {sum_} + pending {self.pending}"
        return "\n".join((head, *self.violations))


def check_integrity(cache: SparseRadixCache, requests: Iterable[Any]) -> IntegrityReport:
    """Account for every slot and check the tree.

    Parameters
    ----------
    cache
        Checked as it stands; nothing is changed.
    requests
        Every request that SGLang knows of, running or waiting.

    Notes
    -----
    Linear in the nodes and slots; copies slot ids from the device.
    """
    allocator = cache.req_to_token_pool.mamba_allocator
    owners = {
        "free": allocator.free_slots.tolist(),
        "tree": cache.all_mamba_values_flatten().tolist(),
        "running": [slot for request in requests for slot in _held_by(request)],
        "pending": cache.pending_slot_ids(),
    }
    return IntegrityReport(
        slots=allocator.size,
        violations=(
            *_slot_violations(owners, allocator.size),
            *_tree_violations(cache),
        ),
        **{owner: len(slots) for owner, slots in owners.items()},
    )


def _held_by(request: Any) -> list[int]:
    held = []
    if request.kv.mamba_pool_idx is not None:
        held.append(int(request.kv.mamba_pool_idx))
    if request.kv.mamba_ping_pong_track_buffer is not None:
        held.extend(slot for slot in request.kv.mamba_ping_pong_track_buffer.tolist() if slot > 0)
    return held


def _slot_violations(owners: dict[str, list[int]], size: int) -> Iterable[str]:
    times = Counter(slot for slots in owners.values() for slot in slots)
    for slot in range(1, size + 1):
        if times[slot] != 1:
            names = [owner for owner, slots in owners.items() if slot in slots]
            yield f"slot {slot}: owned {times[slot]} times ({', '.join(names) or 'by none'})"
    for slot in sorted(times):
        if not 1 <= slot <= size:
            yield f"slot {slot}: outside 1..{size}"


def _tree_violations(cache: SparseRadixCache) -> Iterable[str]:
    try:
        cache.tree_core.sanity_check([], [])
    except AssertionError as error:
        yield f"tree: {error}"
    yield from cache.planner.violations(cache.tree_core.root_node)
    for node in cache.tree_core._collect_all_nodes():
        for key, child in node.children.items():
            if key != child.key.child_key(cache.page_size):
                yield f"node {child.id}: filed under {key!r}, its key begins otherwise"
