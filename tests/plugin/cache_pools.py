"""SGLang's fixture pools and the caches over them, stock or sparse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.test.kits.unified_radix_cache import fixtures
from sglang.test.kits.unified_radix_cache.config import CONFIGS, CacheConfig

from sglang_sparse.cache import SparseRadixCache
from sglang_sparse.component import SparseStateComponent
from sglang_sparse.planner import Planner
from tree_placement.policy import PolicySettings, SparsePolicy

ROWS = 3
SLOTS = 19
KV_STEPS = 64


def grid_of(cfg: CacheConfig) -> int:
    """The distance in tokens between depths where a state can exist, small for small pages."""
    return max(cfg.page_size, 8)


def configurations(rows: int = ROWS, slots: int = SLOTS) -> list[CacheConfig]:
    """SGLang's configurations with recurrent states, with pools small enough to run full."""
    return [
        replace(
            cfg,
            max_num_reqs=rows,
            mamba_cache_size=slots,
            kv_size=KV_STEPS * grid_of(cfg),
            max_context_len=KV_STEPS * grid_of(cfg),
            sliding_window_size=cfg.sliding_window_size and max(cfg.page_size, 2 * grid_of(cfg)),
        )
        for cfg in CONFIGS
        if cfg.has_mamba
    ]


def build_cache(cfg: CacheConfig, *, sparse: bool, states_per_path: int) -> tuple[Any, Any, Any]:
    """Return a cache, its allocator of KV and its pool of request rows and state slots."""
    if not sparse:
        stock: tuple[Any, Any, Any] = fixtures.build_fixture(
            cfg, mamba_cache_chunk_size=grid_of(cfg)
        )
        return stock
    with mock.patch.object(fixtures, "UnifiedRadixCache", SparseRadixCache):
        cache, kv, rows = fixtures.build_fixture(
            cfg,
            mamba_cache_chunk_size=grid_of(cfg),
            component_registry_override={ComponentType.MAMBA: SparseStateComponent},
        )
    grid = grid_of(cfg)
    settings = PolicySettings(states_per_path=states_per_path, grid=grid, tail=2 * grid, bin=grid)
    cache.configure(Planner(SparsePolicy(settings)), grid)
    return cache, kv, rows
