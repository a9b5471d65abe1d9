"""SGLang's radix cache, extended: it plans, captures and publishes states along each prompt.

Data goes one way. A match is remembered (`match_prefix`); when its prefill is prepared it is
observed and planned, and slots are taken (`plan_captures`); the forward pass writes them; when
SGLang publishes the prompt, nodes are split and the states attached (`checkpoint_into_tree`).

A slot is owned by exactly one of: the tree, a running request, a pending capture, the free list.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from sglang.srt.constants import HEALTH_CHECK_RID_PREFIX
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams, MatchResult
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from sglang_sparse.component import depth_of
from sglang_sparse.counters import Counters
from sglang_sparse.explanation import Explanation
from sglang_sparse.integrity import IntegrityReport, check_integrity
from sglang_sparse.lookup import explain
from sglang_sparse.placement import to_plain
from sglang_sparse.planner import Planner, has_state, path_to_root
from sglang_sparse.request_plans import PendingCapture, RequestPlan, RequestPlans
from sglang_sparse.statistics import StatisticsFile
from tree_placement.policy import LossReason, PlannedState, RefusedState, next_to_admit

logger = logging.getLogger(__name__)


class SparseRadixCache(UnifiedRadixCache):  # type: ignore[misc]
    """A radix cache that keeps few exact states along each path.

    Parameters
    ----------
    params
        SGLang's, with the states' component overridden by `SparseStateComponent`.

    `planner`, `grid` and `statistics` are set by `configure`, right after construction.
    """

    planner: Planner
    grid: int
    statistics: StatisticsFile | None

    def __init__(self, params: CacheInitParams) -> None:
        self.counters = Counters()
        self._plans = RequestPlans()
        self._publishing: Any | None = None
        self._new_states: list[int] = []
        self._integrity: IntegrityReport | None = None
        super().__init__(params)

    def configure(
        self, planner: Planner, grid: int, statistics: StatisticsFile | None = None
    ) -> None:
        """Set what decides, the distance between depths where a state can exist, and the file that
        keeps what the policy learned, if any."""
        self.planner = planner
        self.grid = grid
        self.statistics = statistics

    # Observe

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """Match as SGLang does, and remember how far the tree holds the request's tokens.

        In plain numbers, since eviction may take nodes of the path before the request is planned.
        """
        result = super().match_prefix(params)
        if params.req is not None:
            self._remember(params.req, result)
        return result

    def _remember(self, req: Any, result: MatchResult) -> None:
        plan = self._plans.get(req)
        if plan is not None and plan.pending:
            return
        node_id = result.last_visited_node_id
        visit = self.planner.visit(
            self.tree_core.node_by_id(node_id) if node_id is not None else None,
            f"{req.extra_key!r} {req.cache_salt!r}",
            result.full_kv_hit_length,
        )
        self._plans.remember(req, visit)

    # Place and capture

    def plan_captures(self, req: Any) -> Sequence[PendingCapture]:
        """Take slots for the states of the request's next forward pass, and return them.

        Called when the pass is prepared: `req.prefix_len` is where it starts, `req.extend_end`
        where it ends. The first pass of a prompt is where it is observed and planned. Never
        fails: a state that finds no slot is skipped and counted.
        """
        plan = self._plans.get(req)
        if plan is None or req.skip_radix_cache_insert or _is_health_check(req):
            return ()
        length = len(req.full_untruncated_fill_ids)
        if not plan.observed:
            plan.observed = True
            self._count(req, plan, length)
            plan.origin = self.planner.observe(plan.visit, length)
            self.keep_statistics(idle=False)
        if plan.states is None and plan.origin is not None:
            full = self.req_to_token_pool.mamba_allocator.available_size() == 0
            plan.states = self.planner.plan(plan.visit, plan.origin, req.prefix_len, length, full)
        of_pass = plan.states_of_pass(req.prefix_len, req.extend_end, self.grid)
        self.counters.planned += len(of_pass)
        captures = self._take_slots(plan, of_pass, req.prefix_len)
        plan.pending.extend(captures)
        return captures

    def _take_slots(
        self, plan: RequestPlan, waiting: list[PlannedState], start: int
    ) -> list[PendingCapture]:
        """Take slots for planned states, the one that saves most first, while they are worth it."""
        captures: list[PendingCapture] = []
        while waiting:
            state, above = next_to_admit(waiting, [capture.depth for capture in captures], start)
            slot = self._take_slot(state, above)
            if isinstance(slot, RefusedState):
                plan.refused += [slot._replace(depth=each.depth) for each in waiting]
                break
            waiting.remove(state)
            captures.append(PendingCapture(start, state, slot))
        self.counters.captured += len(captures)
        return captures

    def _count(self, req: Any, plan: RequestPlan, length: int) -> None:
        self.counters.prompts += 1
        self.counters.prompt_tokens += length
        self.counters.overlap_tokens += plan.visit.overlap
        self.counters.resumed_tokens += req.prefix_len

    def _take_slot(self, state: PlannedState, above: int) -> torch.Tensor | RefusedState:
        """Return a slot for an optional state, or why not; `above` is the depth of the one above.

        A running request never waits for it: a pending capture is given up for one that finds
        neither a free slot nor a state to evict (`revoke_capture`).
        """
        allocator = self.req_to_token_pool.mamba_allocator
        if allocator.available_size() == 0:
            states = self.components[ComponentType.MAMBA]
            displaced = states.least_valuable()
            if displaced is None:
                self.counters.skipped_no_slot += 1
                return RefusedState(state.depth, LossReason.NO_SLOT)
            if not self.planner.is_worth_a_slot(state, above, displaced):
                self.counters.skipped_not_worth += 1
                value, price = state.rate * (state.depth - above), self.planner.value(displaced)
                return RefusedState(state.depth, LossReason.NOT_WORTH, value, price)
            states.give_up(displaced, LossReason.EVICTED)
        slot: torch.Tensor | None = allocator.alloc(1)
        if slot is None:
            self.counters.skipped_no_slot += 1
            return RefusedState(state.depth, LossReason.NO_SLOT)
        return slot

    def still_pending(self, req: Any, capture: PendingCapture) -> bool:
        """Tell whether a capture's slot is still its own, so that a pass may write it."""
        return self._plans.still_pending(req, capture)

    def mark_written(self, req: Any, capture: PendingCapture) -> None:
        """Note that a forward pass has written a capture: it may be published."""
        self._plans.mark_written(req, capture)

    def revoke_capture(self) -> bool:
        """Free the slot of the pending capture used least; False where there is none.

        A forward pass that runs already may still write to the slot. That is before whatever its
        next owner does with it, since passes run in order.
        """
        capture = self._plans.revoke()
        if capture is None:
            return False
        self.req_to_token_pool.mamba_allocator.free(capture.slot)
        self.counters.revoked += 1
        return True

    # Publish

    def checkpoint_into_tree(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        """Publish the request as SGLang does, then attach the states of what was published.

        A path that has more states than its budget then gives up the least valuable ones.
        """
        self._publishing = req
        self._new_states = []
        try:
            super().checkpoint_into_tree(req, up_to=up_to, **kwargs)
        finally:
            self._publishing = None
        plan = self._plans.get(req)
        if plan is not None:
            self._watch(req, plan)
            if plan.pending:
                self._attach(req, plan)
        for state in self._new_states:
            self._bound_path(state)

    def _watch(self, req: Any, plan: RequestPlan) -> None:
        """Tell the planner which planned states are on the published path, captured or not."""
        published = req.kv.cache_protected_len
        planned = [state for state in plan.states or () if state.depth <= published]
        if planned:
            node = self.tree_core.node_by_id(req.last_node)
            self.planner.published(node, planned, plan.take_refused(published))

    def _attach(self, req: Any, plan: RequestPlan) -> None:
        """Split the request's published path at the captured depths and hand over their slots.

        What lies deeper than the request's published KV waits for the next checkpoint. A capture
        whose forward pass never ran is given back.
        """
        ready = plan.take_pending(req.kv.cache_protected_len)
        self._discard([capture for capture in ready if not capture.written])
        node = self.tree_core.node_by_id(req.last_node)
        written = [capture for capture in ready if capture.written]
        for capture in sorted(written, key=lambda capture: capture.depth, reverse=True):
            while depth_of(node.parent) >= capture.depth:
                node = node.parent
            node = self._attach_at(node, capture)

    def _attach_at(self, node: Any, capture: PendingCapture) -> Any:
        """Give a capture's slot to the tree, at its depth in `node`; return the node there."""
        core = self.tree_core
        if capture.depth < depth_of(node):
            node, _ = core._split_node(node.key, node, capture.depth - depth_of(node.parent))
        if has_state(node):
            self.counters.superseded += 1
            self.req_to_token_pool.mamba_allocator.free(capture.slot)
            return node
        core.set_component_device_value(node.id, ComponentType.MAMBA, capture.slot)
        self.state_added(node, capture.planned)
        self.counters.published += 1
        return node

    def state_added(self, node: Any, planned: PlannedState) -> None:
        """Note the state that a publication has just put at the end of `node`."""
        self._new_states.append(node.id)
        self.planner.state_added(node, planned)

    def _bound_path(self, state: int) -> None:
        """Give up states on the paths through `state` until none has more than its budget.

        A path's deepest state stays, and so does one that a request holds.
        """
        states = self.components[ComponentType.MAMBA]
        while (surplus := self.planner.surplus(state, states.may_go)) is not None:
            states.give_up(surplus, LossReason.TRIMMED)
            self.counters.trimmed += 1
            if self.planner.is_live(surplus):
                return

    def planned_state(self, node: Any) -> PlannedState:
        """Return the state that SGLang publishes at `node`, as it was planned if it was."""
        depth = depth_of(node)
        plan = self._plans.get(self._publishing) if self._publishing is not None else None
        if plan is None:
            return self.planner.unplanned("", depth)
        planned = plan.planned_at(depth, self.grid)
        return planned or self.planner.unplanned(plan.visit.namespace, depth)

    def publishing_length(self) -> int:
        """Return the length in tokens of the prompt that is being published."""
        return len(self._publishing.full_untruncated_fill_ids) if self._publishing else 0

    # Release

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        """Give back what the request still held, its pending captures included."""
        super().on_release(req, checkpointed=checkpointed)
        plan = self._plans.get(req)
        if plan is not None:
            self._discard(plan.pending)
            plan.pending = []
            plan.states = None
        self._bound_released_path(req)

    def _bound_released_path(self, req: Any) -> None:
        """Give up what the request held of its path beyond the path's budget."""
        try:
            node = self.tree_core.node_by_id(req.last_node)
        except KeyError:
            return
        for above in path_to_root(node):
            if has_state(above):
                self._bound_path(above.id)
                return

    def keep_statistics(self, *, idle: bool) -> None:
        """Write what the policy learned to its file, if there is one and it is time."""
        if self.statistics is not None:
            self.statistics.save_if_due(self.counters.prompts, idle=idle)

    def save_statistics(self) -> None:
        """Write what the policy learned to its file, if there is one; return once it is there."""
        if self.statistics is not None:
            self.statistics.save(self.counters.prompts)

    def release_host_resources(self) -> None:
        """Write the statistics, and end as SGLang does: the scheduler stops."""
        self.save_statistics()
        super().release_host_resources()

    def reset(self) -> None:
        """Empty the tree; SGLang empties the pools itself."""
        super().reset()
        self._plans.drop_pending()
        if hasattr(self, "planner"):
            self.planner.forget_states()

    # Tell

    def pending_slot_ids(self) -> list[int]:
        """Return the slots that pending captures own."""
        return [int(capture.slot) for capture in self._plans.pending()]

    def explain(
        self, tokens: Sequence[int], extra_key: str | None, cache_salt: str | None
    ) -> Explanation:
        """Explain where a prompt would resume, and change nothing."""
        return explain(self, tokens, extra_key, cache_salt)

    def placement(self) -> dict[str, Any] | None:
        """Return the states that are kept and what they are kept for, as plain data; None where
        the policy fails. Nothing is changed."""
        forecast = self.planner.forecast()
        return to_plain(forecast, self.grid) if forecast is not None else None

    def check_integrity(self, requests: Iterable[Any]) -> IntegrityReport:
        """Account for every slot, log the terms, and keep the report for `report`."""
        self._integrity = check_integrity(self, requests)
        logger.log(logging.INFO if self._integrity.holds else logging.ERROR, "%s", self._integrity)
        return self._integrity

    def report(self) -> dict[str, Any]:
        """Return the counters, the live states and the last integrity report, as plain data."""
        return {
            "grid": self.grid,
            "states": self.mamba_evictable_size() + self.mamba_protected_size(),
            "counters": asdict(self.counters),
            "integrity": {**asdict(self._integrity), "holds": self._integrity.holds}
            if self._integrity is not None
            else None,
        }

    def _discard(self, captures: Sequence[PendingCapture]) -> None:
        for capture in captures:
            self.req_to_token_pool.mamba_allocator.free(capture.slot)
        self.counters.discarded += len(captures)


def _is_health_check(req: Any) -> bool:
    """Tell whether a request is a probe of SGLang's own, which says nothing of prompts."""
    return isinstance(req.rid, str) and req.rid.startswith(HEALTH_CHECK_RID_PREFIX)
