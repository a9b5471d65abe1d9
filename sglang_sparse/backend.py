"""The factory behind `--radix-cache-backend sparse`: checks the host, builds, installs the hooks.

SGLang logs a hook that fails and goes on without it. Every hook is therefore checked here to have
taken, and the start stops where one has not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang.srt.mem_cache.registry import TreeCacheBuildContext, create_unified_radix_cache
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import mamba_checkpoint_grid

from sglang_sparse import capture, endpoint, host
from sglang_sparse.cache import SparseRadixCache
from sglang_sparse.component import SparseStateComponent
from sglang_sparse.options import SparseOptions
from sglang_sparse.planner import Planner
from sglang_sparse.requirements import unmet_requirement
from sglang_sparse.room import unmet_room
from sglang_sparse.startup import options_of
from sglang_sparse.statistics import StatisticsFile
from tree_placement.policy import PolicySettings, SparsePolicy

logger = logging.getLogger(__name__)

_GDN = "sglang.srt.layers.attention.linear.gdn_backend"
_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"

HOOKS: dict[str, tuple[Callable[..., Any], HookType]] = {
    "sglang.srt.managers.schedule_batch.ScheduleBatch."
    "_mamba_radix_cache_v2_req_prepare_for_extend": (capture.prepare_for_extend, HookType.AROUND),
    "sglang.srt.managers.tp_worker.TpModelWorker.forward_batch_generation": (
        capture.forward_batch_generation,
        HookType.AROUND,
    ),
    f"{_GDN}.GDNAttnBackend.forward_extend": (capture.gdn_forward_extend, HookType.AROUND),
    f"{_GDN}.GDNKernelDispatcher.extend": (capture.gdn_extend, HookType.AROUND),
    f"{_SCHEDULER}.get_internal_state": (endpoint.get_internal_state, HookType.AFTER),
    f"{_SCHEDULER}.set_internal_state": (endpoint.set_internal_state, HookType.AROUND),
    f"{_SCHEDULER}.on_idle": (endpoint.on_idle, HookType.BEFORE),
}
"""What of SGLang is hooked once the back end is chosen, and how."""


def build(context: TreeCacheBuildContext) -> SparseRadixCache:
    """Build the cache, in the scheduler's process.

    Raises
    ------
    RuntimeError
        Where SGLang is not the version this plugin was made for, or a hook did not take.
    ValueError
        Where the settings, the model or the device cannot work.
    """
    host.check()
    unmet = unmet_requirement(context.server_args)
    if unmet is not None:
        raise ValueError(unmet)
    _install_hooks()
    options = options_of(context.server_args)
    grid = mamba_checkpoint_grid(context.params.page_size)
    context.params.component_registry_override = {
        **(context.params.component_registry_override or {}),
        ComponentType.MAMBA: SparseStateComponent,
    }
    cache = create_unified_radix_cache(context, cache_class=SparseRadixCache)
    assert isinstance(cache, SparseRadixCache)
    unmet = unmet_room(
        context=cache.req_to_token_pool.max_context_len,
        kv_tokens=context.params.token_to_kv_pool_allocator.size,
        grid=grid,
    )
    if unmet is not None:
        raise ValueError(unmet)
    policy = SparsePolicy(_policy_settings(options, grid))
    policy.warm_up()
    file = StatisticsFile(Path(options.statistics), policy) if options.statistics else None
    warm = file is not None and file.read()
    cache.configure(Planner(policy), grid, file)
    _announce(cache, options, warm=warm)
    return cache


def _policy_settings(options: SparseOptions, grid: int) -> PolicySettings:
    return PolicySettings(
        states_per_path=options.states_per_path,
        grid=grid,
        tail=options.tail,
        decay=options.decay,
        bin=options.bin,
        subtrees=options.subtrees,
    )


def _install_hooks() -> None:
    for target, (hook, kind) in HOOKS.items():
        if target not in HookRegistry._patched:
            HookRegistry.register(target, hook, kind)
    HookRegistry.apply_hooks()
    missing = [target for target in HOOKS if target not in HookRegistry._patched]
    if missing:
        raise RuntimeError(
            f"SGLang hooks: got none on {', '.join(missing)}; need all of {len(HOOKS)}; "
            "see the logged exception above, or leave out --radix-cache-backend sparse"
        )


def _announce(cache: SparseRadixCache, options: SparseOptions, *, warm: bool) -> None:
    pool = cache.req_to_token_pool
    logger.info(
        "sglang-sparse: grid %d tokens, %d slots (%d rows of running requests), at most %d states "
        "a path, tree core %s, overlaps in bins of %d tokens decayed by %g, statistics %s",
        cache.grid,
        pool.mamba_allocator.size,
        pool.size,
        options.states_per_path,
        type(cache.tree_core).__name__,
        options.bin,
        options.decay,
        f"warm from {options.statistics}" if warm else "cold",
    )
