"""Every name of SGLang that this plugin relies on, checked at start.

SGLang's internals change between releases without notice. A name that moved, a parameter or an
attribute that went, stops the start here with a line that says which.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib.metadata import version
from typing import Any, NamedTuple

VERSION = "0.5.23"


class HostName(NamedTuple):
    """A dotted name; the parameters a callable must take, in this order among others; the
    attributes that a class or its instances must have."""

    name: str
    parameters: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


_SRT = "sglang.srt."
_CACHE = _SRT + "mem_cache.unified_radix_cache.UnifiedRadixCache"
_CORE = _SRT + "mem_cache.unified_cache.unified_tree_core.UnifiedTreeCore"
_NODE = _SRT + "mem_cache.unified_cache.unified_tree_core.UnifiedTreeNode"
_COMPONENTS = _SRT + "mem_cache.unified_cache.components."
_STATES = _COMPONENTS + "mamba.MambaComponent"
_BASE = _SRT + "mem_cache.base_prefix_cache."
_BATCH = _SRT + "managers.schedule_batch."
_SCHEDULER = _SRT + "managers.scheduler.Scheduler"
_GDN = _SRT + "layers.attention.linear.gdn_backend."
_ARGS = _SRT + "server_args.ServerArgs"

_STARTING: tuple[HostName, ...] = (
    HostName(_SRT + "mem_cache.registry.register_radix_cache_backend", ("name", "factory")),
    HostName(_SRT + "mem_cache.registry.create_unified_radix_cache", ("ctx", "cache_class")),
    HostName(
        _SRT + "mem_cache.registry.TreeCacheBuildContext", attributes=("server_args", "params")
    ),
    HostName(
        _SRT + "mem_cache.cache_init_params.CacheInitParams",
        attributes=("page_size", "component_registry_override"),
    ),
    HostName(_SRT + "plugins.hook_registry.HookRegistry", attributes=("_patched", "apply_hooks")),
    HostName(_SRT + "plugins.hook_registry.HookRegistry.register", ("target", "hook", "hook_type")),
    HostName(
        _SRT + "plugins.hook_registry.HookType",
        attributes=("BEFORE", "AFTER", "AROUND", "REPLACE"),
    ),
    HostName(_SRT + "runtime_context.mamba_checkpoint_grid", ("tree_page",)),
    HostName(_SRT + "arg_groups.overrides.resolving_view", ("server_args",)),
    HostName(_SRT + "arg_groups.overrides.model_config_of"),
    HostName(_SRT + "configs.hybrid_arch.hybrid_gdn_config", ("model_config",)),
    HostName(_SRT + "configs.hybrid_arch.mambaish_config", ("model_config",)),
    HostName(_SRT + "platforms.current_platform", attributes=("device_name",)),
    HostName(
        _ARGS,
        attributes=("radix_cache_backend", "add_cli_args", "from_cli_args", "check_server_args"),
    ),
)

_TREE: tuple[HostName, ...] = (
    HostName(
        _CACHE,
        attributes=(
            "tree_core",
            "req_to_token_pool",
            "mamba_evictable_size",
            "mamba_protected_size",
            "all_mamba_values_flatten",
        ),
    ),
    HostName(_CACHE + ".match_prefix", ("self", "params")),
    HostName(_CACHE + ".checkpoint_into_tree", ("self", "req", "up_to")),
    HostName(_CACHE + ".on_release", ("self", "req", "checkpointed")),
    HostName(_CACHE + ".evict", ("self", "params")),
    HostName(_CACHE + ".reset", ("self",)),
    HostName(_BASE + "EvictParams", ("num_tokens", "mamba_num")),
    HostName(_BASE + "MatchPrefixParams", attributes=("req",)),
    HostName(
        _BASE + "MatchResult",
        attributes=("full_kv_hit_length", "last_visited_node_id"),
    ),
    HostName(_CORE + ".node_by_id", ("self", "node_id")),
    HostName(_CORE + "._split_node", ("self", "key", "child", "split_len")),
    HostName(_CORE + ".set_component_device_value", ("self", "node_id", "component_type", "value")),
    HostName(_CORE + ".get_component_device_value", ("self", "node_id", "component_type")),
    HostName(
        _CORE + "._evict_component_and_detach_lru",
        ("self", "node", "comp", "device_frees", "host_frees", "cache_actions", "target"),
    ),
    HostName(_CORE + "._update_evictable_leaf_sets", ("self", "node")),
    HostName(_CORE + "._collect_all_nodes", ("self",)),
    HostName(_CORE + ".sanity_check", ("self", "ongoing_write_through", "ongoing_load_back")),
    HostName(_CORE, attributes=("lru_lists", "root_node")),
    HostName(
        _SRT + "mem_cache.unified_cache.unified_tree_core.UnifiedLRUList.get_lru_no_lock", ("self",)
    ),
    HostName(_NODE, attributes=("id", "key", "parent", "children", "component_data")),
    HostName(_COMPONENTS + "base.ComponentType", attributes=("MAMBA",)),
    HostName(_COMPONENTS + "base.EvictLayer", attributes=("DEVICE",)),
    HostName(_COMPONENTS + "base.ComponentData", attributes=("value", "lock_ref", "metadata")),
    HostName(_STATES, attributes=("component_type",)),
    HostName(
        _STATES + ".commit_insert_component_data",
        ("self", "node", "is_new_leaf", "params", "result", "cache_actions"),
    ),
    HostName(_STATES + ".redistribute_on_node_split", ("self", "new_parent", "child")),
    HostName(
        _STATES + ".evict_component",
        ("self", "node", "device_frees", "host_frees", "cache_actions", "target"),
    ),
    HostName(_STATES + "._evict_device_start", ("self", "request_cnt")),
    HostName(
        _STATES + "._evict_device_next_node",
        ("self", "tracker", "device_frees", "host_frees", "cache_actions"),
    ),
    HostName(_STATES + "._evict_device_end", ("self",)),
    HostName(
        _SRT + "mem_cache.allocator.mamba.MambaSlotAllocator",
        attributes=("size", "free_slots", "alloc", "free", "available_size"),
    ),
    HostName(
        _SRT + "mem_cache.memory_pool.HybridReqToTokenPool",
        attributes=("size", "mamba_allocator"),
    ),
)

_SERVING: tuple[HostName, ...] = (
    HostName(
        _BATCH + "Req",
        attributes=(
            "full_untruncated_fill_ids",
            "prefix_len",
            "extend_end",
            "extra_key",
            "cache_salt",
            "kv",
            "last_node",
            "mamba_branching_seqlen",
            "skip_radix_cache_insert",
        ),
    ),
    HostName(
        _BATCH + "ReqKvInfo",
        attributes=("cache_protected_len", "mamba_pool_idx", "mamba_ping_pong_track_buffer"),
    ),
    HostName(_BATCH + "ScheduleBatch", attributes=("reqs", "tree_cache")),
    HostName(
        _BATCH + "ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend", ("self", "req")
    ),
    HostName(_SRT + "managers.tp_worker.TpModelWorker.forward_batch_generation", ("self", "batch")),
    HostName(
        _GDN + "GDNAttnBackend.forward_extend", ("self", "layer", "forward_batch", "mixed_qkv")
    ),
    HostName(_GDN + "GDNAttnBackend", attributes=("_translate_mamba_indices",)),
    HostName(
        _GDN + "GDNKernelDispatcher.extend",
        ("self", "q", "k", "v", "g", "beta", "ssm_states", "cache_indices", "query_start_loc"),
    ),
    HostName(_SCHEDULER, attributes=("collect_inflight_reqs", "waiting_queue", "chunked_req")),
    HostName(_SCHEDULER + ".get_internal_state", ("self", "recv_req")),
    HostName(_SCHEDULER + ".set_internal_state", ("self", "recv_req")),
    HostName(_SRT + "managers.io_struct.SetInternalStateReq", attributes=("server_args",)),
    HostName(_SRT + "managers.io_struct.SetInternalStateReqOutput", attributes=("updated",)),
    HostName(_SRT + "utils.auth.AuthLevel", attributes=("ADMIN_OPTIONAL",)),
    HostName(_SRT + "utils.auth.auth_level", ("level",)),
)

RELIED_ON: tuple[HostName, ...] = _STARTING + _TREE + _SERVING


def check() -> None:
    """Check SGLang's version and every name of `RELIED_ON`.

    Raises
    ------
    RuntimeError
        On the first that does not fit, with what to install.
    """
    installed = version("sglang")
    if installed != VERSION:
        raise RuntimeError(
            f"sglang: got {installed}; need {VERSION}; run pip install sglang=={VERSION}"
        )
    for relied_on in RELIED_ON:
        problem = _problem(relied_on)
        if problem is not None:
            raise RuntimeError(
                f"{relied_on.name}: got {problem}; need the one of sglang {VERSION}; "
                f"run pip install --force-reinstall sglang=={VERSION}"
            )


def _problem(relied_on: HostName) -> str | None:
    try:
        found = pkgutil.resolve_name(relied_on.name)
    except (ImportError, AttributeError) as error:
        return f"nothing there ({error})"
    if relied_on.parameters:
        parameters = iter(inspect.signature(found).parameters)
        if not all(name in parameters for name in relied_on.parameters):
            return f"the signature {inspect.signature(found)}"
    missing = [name for name in relied_on.attributes if not _has(found, name)]
    return f"no {', '.join(missing)}" if missing else None


def _has(found: Any, attribute: str) -> bool:
    """Tell whether a class, or what its constructors assign, has an attribute."""
    if hasattr(found, attribute):
        return True
    for base in getattr(found, "__mro__", ()):
        if attribute in inspect.get_annotations(base):
            return True
        for method in vars(base).values():
            code = getattr(method, "__code__", None)
            if code is not None and attribute in code.co_names:
                return True
    return False
