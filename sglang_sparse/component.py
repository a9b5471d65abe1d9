"""SGLang's tree component for recurrent states, with our eviction order and the branches' ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType, EvictLayer
from sglang.srt.mem_cache.unified_cache.components.mamba import MambaComponent
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import BaseEvictionResult

from tree_placement.policy import LossReason

if TYPE_CHECKING:
    from sglang_sparse.cache import SparseRadixCache

_BRANCH, _DEPTH = "sparse_branch", "sparse_depth"


@dataclass(frozen=True)
class Branch:
    """What one prompt added to the tree, however often it is split later.

    A prompt that goes on from a leaf continues the leaf's branch, unless the branch is `cut` there:
    more tokens of it followed, which the tree dropped. It begins at depth `begin` of `parent`, 0 at
    the root. `length` is the number of tokens of the prompt that added this node, `turn` that of
    the prompts that built the path down to it.
    """

    id: int
    parent: Branch | None
    begin: int
    length: int
    turn: int
    cut: bool = False


def branch_of(node: Any) -> Branch | None:
    """Return the branch that a tree node belongs to; None for the root."""
    record = node.component_data[ComponentType.MAMBA].metadata.get(_BRANCH)
    return record if isinstance(record, Branch) else None


def depth_of(node: Any) -> int:
    """Return the depth in tokens at which a tree node ends; it never changes.

    Linear in the nodes above that were never asked about.
    """
    if node.parent is None:
        return 0
    metadata = node.component_data[ComponentType.MAMBA].metadata
    depth: int | None = metadata.get(_DEPTH)
    if depth is None:
        depth = metadata[_DEPTH] = depth_of(node.parent) + len(node.key)
    return depth


class SparseStateComponent(MambaComponent):  # type: ignore[misc]
    """States that leave in the planner's order, and leave their KV where it is."""

    cache: SparseRadixCache

    def __init__(self, cache: SparseRadixCache, params: Any) -> None:
        super().__init__(cache, params)
        self._next_branch = 1
        self._eviction_order: Iterator[int] = iter(())
        self._evict_request_count = 0
        self._reason = LossReason.EVICTED

    def commit_insert_component_data(
        self, node: Any, is_new_leaf: bool, params: Any, result: Any, cache_actions: list[Any]
    ) -> None:
        """Attach the state SGLang tracked; a new leaf joins or begins a branch."""
        if is_new_leaf:
            self._set_branch(node)
        super().commit_insert_component_data(node, is_new_leaf, params, result, cache_actions)
        if not result.mamba_exist:
            self.cache.state_added(node, self.cache.planned_state(node))

    def redistribute_on_node_split(self, new_parent: Any, child: Any) -> None:
        """Leave the state with the lower half; both halves stay of one branch."""
        super().redistribute_on_node_split(new_parent, child)
        upper, lower = (
            node.component_data[self.component_type].metadata for node in (new_parent, child)
        )
        if _BRANCH in lower:
            upper[_BRANCH] = lower[_BRANCH]
        if _DEPTH in lower:
            upper[_DEPTH] = lower[_DEPTH] - len(child.key)

    def evict_component(
        self,
        node: Any,
        device_frees: dict[Any, list[torch.Tensor]],
        host_frees: dict[Any, list[torch.Tensor]],
        cache_actions: list[Any],
        target: EvictLayer = EvictLayer.DEVICE,
    ) -> tuple[int, int]:
        """Free a node's state, for whatever reason it goes, and tell the planner.

        SGLang frees all layers of a leaf that it drops with its KV.
        """
        held = node.component_data[self.component_type].value is not None
        freed: tuple[int, int] = super().evict_component(
            node, device_frees, host_frees, cache_actions, target=target
        )
        if held and EvictLayer.DEVICE in target:
            self.cache.planner.state_gone(node, self._reason)
        if target == EvictLayer.ALL:
            self._cut_above(node)
        return freed

    def _evict_device_start(self, request_cnt: int) -> None:
        self._evict_request_count = request_cnt
        self._eviction_order = self.cache.planner.eviction_order()

    def _evict_device_next_node(
        self,
        tracker: dict[Any, int],
        device_frees: dict[Any, list[torch.Tensor]],
        host_frees: dict[Any, list[torch.Tensor]],
        cache_actions: list[Any],
    ) -> None:
        """Give up the least valuable state that no request holds; its KV stays.

        Where the tree has none left, a capture that is not published yet is given up. One a step,
        so that SGLang can look after each whether it has enough. The order is computed once a walk,
        which bounds the walk by the number of live states.
        """
        if tracker[self.component_type] >= self._evict_request_count:
            return
        node = self._first_free(self._eviction_order)
        if node is None:
            tracker[self.component_type] += self.cache.revoke_capture()
            return
        self._give_up(node, device_frees, host_frees, cache_actions, tracker)

    def _evict_device_end(self) -> None:
        self._eviction_order = iter(())

    def least_valuable(self) -> int | None:
        """Return the least valuable state that no request holds; None where there is none."""
        node = self._first_free(self.cache.planner.eviction_order())
        return node.id if node is not None else None

    def may_go(self, state: int) -> bool:
        """Tell whether a state still stands in the tree and no running request holds it."""
        try:
            data = self.tree_core.node_by_id(state).component_data[self.component_type]
        except KeyError:
            return False
        return data.value is not None and data.lock_ref == 0

    def give_up(self, state: int, reason: LossReason) -> None:
        """Free one state at once; its KV stays."""
        result = BaseEvictionResult()
        tracker = dict.fromkeys(self.cache.tree_components, 0)
        self._reason = reason
        try:
            self._give_up(
                self.tree_core.node_by_id(state),
                result.device_frees,
                result.host_frees,
                result.cache_actions,
                tracker,
            )
        finally:
            self._reason = LossReason.EVICTED
            self.cache._apply_eviction_result(result)

    def _give_up(
        self,
        node: Any,
        device_frees: dict[Any, list[torch.Tensor]],
        host_frees: dict[Any, list[torch.Tensor]],
        cache_actions: list[Any],
        tracker: dict[Any, int],
    ) -> None:
        self.tree_core._evict_component_and_detach_lru(
            node,
            self,
            device_frees,
            host_frees,
            cache_actions,
            target=EvictLayer.DEVICE,
            tracker=tracker,
        )
        self.tree_core._update_evictable_leaf_sets(node)

    def _first_free(self, order: Iterator[int]) -> Any | None:
        """Return the next node of an order whose state no request holds.

        Should the planner ever know other states than the tree, SGLang's own least recently used
        one is next: a running request that needs a slot must find it.
        """
        for state in order:
            if self.may_go(state):
                return self.tree_core.node_by_id(state)
        return self.tree_core.lru_lists[self.component_type].get_lru_no_lock()

    def _cut_above(self, leaf: Any) -> None:
        """Note that a leaf's tokens go, and that its branch is not continued from what stays."""
        self.cache.planner.tokens_gone(leaf)
        record = branch_of(leaf.parent)
        if record is not None:
            metadata = leaf.parent.component_data[self.component_type].metadata
            metadata[_BRANCH] = replace(record, cut=True)

    def _set_branch(self, node: Any) -> None:
        """Record the branch of a new leaf, and of the new nodes that it may have above it."""
        new = [node]
        while (above := new[-1].parent).parent is not None and branch_of(above) is None:
            new.append(above)
        length = self.cache.publishing_length()
        continued = branch_of(above)
        turn = continued.turn + 1 if continued is not None else 1
        if continued is not None and len(above.children) == 1 and not continued.cut:
            record = Branch(continued.id, continued.parent, continued.begin, length, turn)
        else:
            record = Branch(self._next_branch, continued, depth_of(above), length, turn)
            self._next_branch += 1
        for each in new:
            each.component_data[self.component_type].metadata[_BRANCH] = record
