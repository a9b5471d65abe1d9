"""A cache over SGLang's fixture pools, stock or sparse, taken through the steps of real requests.

No model runs. In its place every state and every KV entry is marked with the identity of the
tokens it stands for, so that one written, attached or resumed anywhere else shows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from cache_under_test import CacheUnderTest, TreeState
from identities import marks, write_mark
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req, ScheduleBatch, release_req
from sglang.srt.mem_cache.allocation import alloc_req_slots
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams, MatchResult
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.test.kits.unified_radix_cache.config import CacheConfig
from sglang.test.kits.unified_radix_cache.mixins import UnifiedRadixCacheFixtures

from sglang_sparse.capture import ATTRIBUTE, prepare_for_extend


@dataclass
class Running:
    """A request on its way; `matched` until its first pass, `computed` between pass and publish."""

    req: Req
    identities: list[int]
    stage: str = "matched"


class CacheHarness(CacheUnderTest):
    """A cache that is taken through the steps of requests, with the truth about what it holds.

    Parameters
    ----------
    cfg
        One of `cache_pools.configurations`.
    sparse
        Whether the cache is ours; SGLang's own otherwise.
    states_per_path
        States along one path at most, where it is ours.
    """

    def __init__(self, cfg: CacheConfig, *, sparse: bool, states_per_path: int = 4) -> None:
        super().__init__(cfg, sparse=sparse, states_per_path=states_per_path)
        self._kit = UnifiedRadixCacheFixtures()
        self._kit.cfg = cfg
        self.running: dict[int, Running] = {}
        self.published: set[int] = set()
        self.kv_identity: dict[int, int] = {}

    def requests(self) -> list[Req]:
        """Every request that the scheduler would know of."""
        return [running.req for running in self.running.values()]

    # The steps of a request's life, in their order

    def start(self, name: int, tokens: Sequence[int], namespace: str | None = None) -> Running:
        """Match a new request, copy the state it resumes from, and lock its prefix."""
        numbers = self.identities.along(self.identities.root(namespace), tokens)
        running = Running(self._new_request(name, tokens, namespace), numbers)
        self.running[name] = running
        self._match(running)
        return running

    def extend(self, running: Running, steps: int) -> bool:
        """Compute the next `steps` grid steps of a prompt; False where the KV pool is too full."""
        req = running.req
        end = min(req.prefix_len + steps * self.grid, len(req.full_untruncated_fill_ids))
        req.extend_end = end
        if not self._take_kv(req, req.prefix_len, end):
            return False
        batch = self._prepared_batch(req)
        self._copy_or_clear(req)
        self._check_resumed(running)
        for _, capture in batch.__dict__.get(ATTRIBUTE, ()):
            row_depth = capture.depth - capture.start
            self._mark(capture.slot, running.identities[req.prefix_len + row_depth - 1])
            self.cache.mark_written(req, capture)
        self._mark(req.kv.mamba_pool_idx, running.identities[end - 1])
        self._mark_kv(running, req.prefix_len, end)
        running.stage = "computed"
        return True

    def publish(self, running: Running) -> None:
        """Publish what has been computed of a prompt."""
        pending = self._pending_depths(running.req)
        before, losses = self.states(), self.losses()
        checkpoint_kv_cache(running.req, self.cache)
        self._note_published(running)
        if self.losses() == losses:
            self._check_published(running, pending, before)
        if self.sparse:
            self.check_budget(before)
        done = running.req.prefix_len == len(running.req.full_untruncated_fill_ids)
        running.stage = "decoding" if done else "prompt"

    def decode(self, running: Running, tokens: Sequence[int]) -> bool:
        """Compute output tokens, tracking their state as SGLang does at absolute grid depths."""
        req = running.req
        for token in tokens:
            at = req.kv.kv_committed_len
            if at + 1 >= self.cfg.max_context_len or not self._take_kv(req, at, at + 1):
                return False
            req.output_ids.append(token)
            running.identities.extend(self.identities.along(running.identities[-1], [token]))
            self._mark_kv(running, at, at + 1)
            self._mark(req.kv.mamba_pool_idx, running.identities[at])
            if self.cfg.enable_mamba_extra_buffer and (at + 1) % self.grid == 0:
                self._track_decoded(req, running.identities[at])
        return True

    def finish(self, running: Running) -> None:
        """Publish what a request has, and give back the rest."""
        running.req.finished_reason = FINISH_LENGTH(length=0)
        owned = running.req.kv.kv_committed_len
        self.published.update(running.identities[:owned])
        release_kv_cache(running.req, self.cache, checkpoint=True)
        self._forget(running)

    def abort(self, running: Running) -> None:
        """Give back what a request holds; nothing of it is published."""
        release_kv_cache(running.req, self.cache, checkpoint=False)
        self.cache.unlock(running.req.lock)
        running.req.lock = None
        self._forget(running)

    def retract(self, running: Running) -> None:
        """Take a request back to before its match, as SGLang does when memory runs out."""
        release_req(
            req=running.req,
            remaing_req_count=0,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.kv,
            tree_cache=self.cache,
            hisparse_coordinator=None,
        )
        self._match(running)
        running.stage = "matched"

    # What others do to the tree

    def look(self, tokens: Sequence[int], namespace: str | None, req: Req | None) -> MatchResult:
        """Match without computing anything, for a waiting request or for none."""
        key = RadixKey(array("q", tokens), extra_key=namespace)
        numbers = self.identities.along(self.identities.root(namespace), tokens)
        with self.checked_match(numbers) as found:
            result: MatchResult = self.cache.match_prefix(MatchPrefixParams(key=key, req=req))
            found.extend((result.device_prefix_len, result.full_kv_hit_length))
        return result

    def evict(self, states: int, tokens: int) -> Any:
        """Ask for states and for tokens of KV to be evicted."""
        return self.cache.evict(EvictParams(num_tokens=tokens, mamba_num=states))

    def reset(self) -> None:
        """Empty the tree and the pools; no request may run."""
        self.cache.reset()
        self.rows.clear()
        self.kv.clear()

    # Inside

    def _new_request(self, name: int, tokens: Sequence[int], namespace: str | None) -> Req:
        return Req(
            rid=str(name),
            origin_input_text="",
            origin_input_ids=array("q", tokens),
            sampling_params=SamplingParams(temperature=0, max_new_tokens=1),
            extra_key=namespace,
        )

    def _match(self, running: Running) -> None:
        req = running.req
        with self.checked_match(running.identities[:-1]) as found:
            req.init_next_round_input(self.cache)
            found.append(req.prefix_len)
        req.lock = self.cache.lock(req.last_node)

    def _take_kv(self, req: Req, start: int, end: int) -> bool:
        """Find KV for [start, end) and write the request's row; a new request gets its row."""
        prefix = None if req.kv.holds_kv else self.cache.prefix_device_indices(req)
        taken = self._kv_in_last_page(req, start, end)
        rest = end - start - len(taken)
        if rest > 0:
            self._make_room(rest)
            new = self._kit._alloc(self.kv, rest)
            if new is None:
                return False
            taken = torch.cat((taken, new))
        if prefix is not None:
            alloc_req_slots(self.rows, [req], self.cache)
            self.rows.write((req.kv.req_pool_idx, slice(0, start)), prefix)
        self.rows.write((req.kv.req_pool_idx, slice(start, end)), taken)
        req.kv.kv_committed_len = req.kv.kv_allocated_len = end
        return True

    def _kv_in_last_page(self, req: Req, start: int, end: int) -> torch.Tensor:
        """Return the entries left in a page that the request has begun."""
        left = -start % self.kv.page_size
        if left == 0:
            return torch.empty(0, dtype=torch.int64)
        last = int(self.rows.req_to_token[req.kv.req_pool_idx, start - 1])
        return torch.arange(last + 1, last + 1 + min(left, end - start))

    def _make_room(self, tokens: int) -> None:
        need = -(-tokens // self.cfg.page_size) * self.cfg.page_size
        full = need - self.cache._component_available_size(ComponentType.FULL)
        swa = 0
        if self.cfg.has_swa:
            swa = need - self.cache._component_available_size(ComponentType.SWA)
        if max(full, swa) > 0:
            params = EvictParams(num_tokens=max(full, 0), swa_num_tokens=max(swa, 0))
            self.cache.evict_for_alloc(params)

    def _prepared_batch(self, req: Req) -> Any:
        """Return a batch of one whose extend is prepared: what is tracked, and our captures."""
        batch = SimpleNamespace(
            tree_cache=self.cache,
            req_to_token_pool=self.rows,
            model_config=SimpleNamespace(
                hf_text_config=SimpleNamespace(mamba_chunk_size=self.grid)
            ),
        )
        prepare: Callable[..., Any] = ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend
        if not self.cfg.enable_mamba_extra_buffer:
            if self.sparse and (captures := self.cache.plan_captures(req)):
                setattr(batch, ATTRIBUTE, [(req, capture) for capture in captures])
            return batch
        entry = prepare_for_extend(prepare, batch, req) if self.sparse else prepare(batch, req)
        if entry.track_mask:
            chunks = (entry.track_seqlen - req.prefix_len) // self.grid
            at = self.running[int(req.rid)].identities[req.prefix_len + chunks * self.grid - 1]
            self._mark(req.kv.mamba_ping_pong_track_buffer[entry.track_position], at)
        return batch

    def _copy_or_clear(self, req: Req) -> None:
        """Do what the forward pass begins with: the resumed state's copy, or a zero state."""
        batch = SimpleNamespace()
        ScheduleBatch._collect_deferred_mamba_cow_and_clear(batch, [req])
        if batch.mamba_cow_src_indices is not None:
            self.rows.copy_mamba_state(batch.mamba_cow_src_indices, batch.mamba_cow_dst_indices)
        if batch.mamba_clear_indices is not None:
            self.rows.mamba_pool.clear_slots(batch.mamba_clear_indices)

    def _track_decoded(self, req: Req, identity: int) -> None:
        kv = req.kv
        self._mark(kv.mamba_ping_pong_track_buffer[kv.mamba_next_track_idx], identity)
        kv.mamba_last_track_idx = kv.mamba_next_track_idx
        kv.mamba_next_track_idx = self.rows.get_mamba_ping_pong_other_idx(kv.mamba_next_track_idx)
        kv.mamba_prev_track_seqlen = kv.mamba_last_track_seqlen
        kv.mamba_last_track_seqlen = kv.kv_committed_len

    def _mark(self, slot: torch.Tensor, identity: int) -> None:
        write_mark(self.rows.mamba_pool, slot, identity)

    def _mark_kv(self, running: Running, start: int, end: int) -> None:
        row = self.rows.req_to_token[running.req.kv.req_pool_idx, start:end].tolist()
        self.kv_identity.update(zip(row, running.identities[start:end], strict=True))

    def _check_resumed(self, running: Running) -> None:
        """The state that the pass starts from is that of exactly the tokens before it."""
        start = running.req.prefix_len
        expected = running.identities[start - 1] if start else 0
        found = marks(self.rows.mamba_pool)[int(running.req.kv.mamba_pool_idx)]
        assert found == expected, f"identity: resumes at {start} from a state of another place"

    def _pending_depths(self, req: Req) -> list[int]:
        if not self.sparse:
            return []
        return [capture.depth for capture in self.cache._plans[req].pending]

    def _note_published(self, running: Running) -> None:
        published = running.req.kv.cache_protected_len
        self.published.update(running.identities[:published])

    def _check_published(
        self, running: Running, pending: Sequence[int], before: set[TreeState]
    ) -> None:
        """Every capture that was published stands in the tree, and no state has gone."""
        published = running.req.kv.cache_protected_len
        after = self.states()
        assert before <= after, "publishing a prompt dropped states of others"
        live = {state.identity for state in after}
        for depth in pending:
            if depth <= published:
                assert running.identities[depth - 1] in live, f"no state at {depth}, captured there"

    def _forget(self, running: Running) -> None:
        del self.running[int(running.req.rid)]
