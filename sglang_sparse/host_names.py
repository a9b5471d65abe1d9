"""Every name of SGLang that this plugin relies on, by what it is relied on for."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from sglang_sparse.platform.operations import OPERATIONS


class HostName(NamedTuple):
    """A dotted name; the parameters a callable must take, in this order among others; the
    attributes that a module, a class or its instances must have."""

    name: str
    parameters: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


_SRT = "sglang.srt."
_REGISTRY = _SRT + "mem_cache.registry."
_HOOKS = _SRT + "plugins.hook_registry."
_ARGS = _SRT + "server_args.ServerArgs"
_PLATFORMS = _SRT + "platforms."
_CACHE = _SRT + "mem_cache.unified_radix_cache.UnifiedRadixCache"
_BASE = _SRT + "mem_cache.base_prefix_cache."
_UNIFIED = _SRT + "mem_cache.unified_cache."
_CORE = _UNIFIED + "unified_tree_core.UnifiedTreeCore"
_COMPONENTS = _UNIFIED + "components."
_STATES = _COMPONENTS + "mamba.MambaComponent"
_KEY = _SRT + "mem_cache.radix_cache.RadixKey"
_POOL = _SRT + "mem_cache.memory_pool."
_SLOTS = _SRT + "mem_cache.allocator.mamba.MambaSlotAllocator"
_BATCH = _SRT + "managers.schedule_batch."
_GDN = _SRT + "layers.attention.linear.gdn_backend."
_SCHEDULER = _SRT + "managers.scheduler.Scheduler"
_MESSAGES = _SRT + "managers.io_struct."
_TOKENIZER = _SRT + "managers.tokenizer_manager.TokenizerManager"
_HTTP = _SRT + "entrypoints.http_server"
_OPENAI = _SRT + "entrypoints.openai."

REGISTERING: tuple[HostName, ...] = (
    HostName(_REGISTRY + "register_radix_cache_backend", ("name", "factory")),
    HostName(_REGISTRY + "registered_radix_cache_backends"),
    HostName(_REGISTRY + "create_unified_radix_cache", ("ctx", "cache_class")),
    HostName(_REGISTRY + "TreeCacheBuildContext", attributes=("server_args", "params")),
    HostName(
        _SRT + "mem_cache.cache_init_params.CacheInitParams",
        attributes=("page_size", "component_registry_override", "token_to_kv_pool_allocator"),
    ),
    HostName(_SRT + "runtime_context.mamba_checkpoint_grid", ("tree_page",)),
    HostName(_HOOKS + "HookRegistry", attributes=("_patched", "apply_hooks")),
    HostName(_HOOKS + "HookRegistry.register", ("target", "hook", "hook_type")),
    HostName(_HOOKS + "HookType", attributes=("BEFORE", "AFTER", "AROUND", "REPLACE")),
)
"""The back end's factory and the hooks."""

SETTINGS: tuple[HostName, ...] = (
    HostName(_ARGS + ".add_cli_args", ("parser",)),
    HostName(_ARGS + ".from_cli_args", ("args",)),
    HostName(_ARGS + ".resolve_once", ("self",)),
    HostName(
        _ARGS,
        attributes=(
            "radix_cache_backend",
            "disable_radix_cache",
            "mamba_radix_cache_strategy",
            "mamba_max_states_per_path",
            "speculative_algorithm",
            "enable_hierarchical_cache",
            "enable_lmcache",
            "enable_flexkv",
            "enable_unified_cache_external_linker",
            "enable_session_radix_cache",
            "enable_streaming_session",
            "enable_unified_memory",
            "enable_page_major_kv_layout",
            "enable_linear_replayssm",
            "enable_linear_replayssm_spec",
            "enable_int8_mamba_checkpoint",
            "enable_mis",
            "enable_two_batch_overlap",
            "enable_pdmux",
            "dllm_algorithm",
            "disaggregation_mode",
            "tp_size",
            "tokenizer_worker_num",
            "dp_size",
            "pp_size",
            "dcp_size",
            "linear_attn_backend",
            "linear_attn_prefill_backend",
            "device",
            "dtype",
            "disable_cuda_graph",
            "sleep_on_idle",
            "sampling_backend",
        ),
    ),
    HostName(
        _SRT + "entrypoints.engine.Engine",
        attributes=("server_args_class", "tokenizer_manager", "loop"),
    ),
    HostName(_SRT + "entrypoints.engine.Engine.shutdown", ("self",)),
    HostName(_SRT + "arg_groups.overrides.resolving_view", ("server_args",)),
    HostName(_SRT + "arg_groups.overrides.model_config_of", ("server_args",)),
    HostName(_SRT + "configs.model_config.ModelConfig", attributes=("hf_config",)),
    HostName(_SRT + "configs.hybrid_arch.hybrid_gdn_config", ("model_config",)),
    HostName(_SRT + "configs.hybrid_arch.mambaish_config", ("model_config",)),
)
"""Flags, keywords, and what is refused."""

DEVICE: tuple[HostName, ...] = (
    HostName(_SRT + "platforms.current_platform", attributes=("device_name", "is_cuda")),
    HostName(_PLATFORMS + "cpu.CpuDeviceMixin", attributes=("device_type", "get_device")),
    HostName(_PLATFORMS + "device_mixin.PlatformEnum", attributes=("OOT",)),
    HostName(_PLATFORMS + "interface.PlatformCapabilities"),
    HostName(
        _PLATFORMS + "interface.SRTPlatform",
        attributes=(
            "_enum",
            "device_name",
            "capabilities",
            "get_default_attention_backend",
            "support_mamba_cache_extra_buffer",
            "init_backend",
        ),
    ),
    HostName(_PLATFORMS + "interface.SRTPlatform.get_device", ("self", "device_id")),
    HostName(_PLATFORMS + "interface.SRTPlatform.is_pin_memory_available", ("self", "device")),
    HostName(
        _PLATFORMS + "interface.SRTPlatform.apply_server_args_defaults", ("self", "server_args")
    ),
)
"""The CPU platform's interface."""

REPLACED: tuple[HostName, ...] = tuple(
    HostName(target, tuple(inspect.signature(operation).parameters))
    for target, operation in OPERATIONS.items()
)
"""The operations that the CPU platform replaces."""

CACHE: tuple[HostName, ...] = (
    HostName(
        _CACHE,
        ("params",),
        (
            "tree_core",
            "req_to_token_pool",
            "page_size",
            "components",
            "tree_components",
            "mamba_evictable_size",
            "mamba_protected_size",
            "all_mamba_values_flatten",
        ),
    ),
    HostName(_CACHE + ".match_prefix", ("self", "params")),
    HostName(_CACHE + ".checkpoint_into_tree", ("self", "req", "up_to")),
    HostName(_CACHE + ".on_release", ("self", "req", "checkpointed")),
    HostName(_CACHE + ".reset", ("self",)),
    HostName(_CACHE + ".release_host_resources", ("self",)),
    HostName(_CACHE + "._apply_eviction_result", ("self", "result")),
    HostName(_BASE + "MatchPrefixParams", attributes=("req",)),
    HostName(_BASE + "MatchResult", attributes=("full_kv_hit_length", "last_visited_node_id")),
    HostName(_BASE + "InsertResult", attributes=("mamba_exist",)),
    HostName(
        _POOL + "HybridReqToTokenPool",
        attributes=("size", "mamba_allocator", "max_context_len"),
    ),
    HostName(_SLOTS, attributes=("size", "free_slots", "available_size")),
    HostName(_SLOTS + ".alloc", ("self", "need_size")),
    HostName(_SLOTS + ".free", ("self", "free_index")),
)
"""The radix cache that ours extends, and the slots."""

TREE: tuple[HostName, ...] = (
    HostName(_CORE, attributes=("lru_lists", "root_node")),
    HostName(_CORE + ".node_by_id", ("self", "node_id")),
    HostName(_CORE + ".match_full_device_prefix", ("self", "key")),
    HostName(_CORE + "._split_node", ("self", "key", "child", "split_len")),
    HostName(_CORE + ".set_component_device_value", ("self", "node_id", "component_type", "value")),
    HostName(
        _CORE + "._evict_component_and_detach_lru",
        (
            *("self", "node", "comp", "device_frees", "host_frees", "cache_actions"),
            *("target", "tracker"),
        ),
    ),
    HostName(_CORE + "._update_evictable_leaf_sets", ("self", "node")),
    HostName(_CORE + "._collect_all_nodes", ("self",)),
    HostName(_CORE + ".sanity_check", ("self", "ongoing_write_through", "ongoing_load_back")),
    HostName(_UNIFIED + "unified_tree_core.UnifiedLRUList.get_lru_no_lock", ("self",)),
    HostName(
        _UNIFIED + "unified_tree_core.UnifiedTreeNode",
        attributes=("id", "key", "parent", "children", "component_data"),
    ),
    HostName(_KEY, ("token_ids", "extra_key", "cache_salt"), ("extra_key", "cache_salt")),
    HostName(_KEY + ".__len__", ("self",)),
    HostName(_KEY + ".raw_token_ids", ("self",)),
    HostName(_KEY + ".child_key", ("self", "page_size")),
    HostName(
        _UNIFIED + "unified_tree_core_interface.BaseEvictionResult",
        attributes=("device_frees", "host_frees", "cache_actions"),
    ),
    HostName(_COMPONENTS + "base.ComponentType", attributes=("MAMBA",)),
    HostName(_COMPONENTS + "base.EvictLayer", attributes=("DEVICE", "ALL")),
    HostName(_COMPONENTS + "base.ComponentData", attributes=("value", "lock_ref", "metadata")),
    HostName(_STATES, ("cache", "params"), ("cache", "component_type", "tree_core")),
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
)
"""The tree, its nodes, and the component that holds their states."""

SERVING: tuple[HostName, ...] = (
    HostName(_SRT + "constants.HEALTH_CHECK_RID_PREFIX"),
    HostName(
        _BATCH + "Req",
        attributes=(
            "rid",
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
    HostName(
        _GDN + "GDNAttnBackend",
        attributes=(
            "forward_metadata",
            "req_to_token_pool",
            "kernel_dispatcher",
            "mamba_chunk_size",
            "_translate_mamba_indices",
        ),
    ),
    HostName(
        _GDN + "GDNKernelDispatcher.extend",
        ("self", "q", "k", "v", "g", "beta", "ssm_states"),
    ),
    HostName(_GDN + "GDNKernelDispatcher", attributes=("extend_kernel",)),
    HostName(
        _SRT + "layers.attention.linear.kernels.kernel_backend.LinearAttnKernelBase",
        attributes=("supports_track_state_snapshot",),
    ),
    HostName(
        _SRT + "layers.attention.mamba.mamba2_metadata.ForwardMetadata",
        attributes=(
            "query_start_loc",
            "mamba_cache_indices",
            "has_mamba_track_mask",
            "track_ssm_h_src",
            "track_ssm_h_dst",
            "track_ssm_h_batch_src",
            "track_chunk_idx",
        ),
    ),
    HostName(
        _SRT + "model_executor.forward_batch_info.ForwardBatch", attributes=("extend_prefix_lens",)
    ),
    HostName(_SRT + "layers.radix_linear_attention.RadixLinearAttention", attributes=("layer_id",)),
    HostName(_POOL + "HybridReqToTokenPool.mamba2_layer_cache", ("self", "layer_id")),
    HostName(_POOL + "MambaPool.State", attributes=("conv",)),
)
"""A request, its batch and its forward pass."""

TELLING: tuple[HostName, ...] = (
    HostName(
        _SCHEDULER,
        attributes=("collect_inflight_reqs", "waiting_queue", "chunked_req", "tree_cache"),
    ),
    HostName(_SCHEDULER + ".get_internal_state", ("self", "recv_req")),
    HostName(_SCHEDULER + ".set_internal_state", ("self", "recv_req")),
    HostName(_SCHEDULER + ".on_idle", ("self",)),
    HostName(_MESSAGES + "GetInternalStateReq", attributes=("rid",)),
    HostName(_MESSAGES + "GetInternalStateReqOutput", attributes=("internal_state",)),
    HostName(_OPENAI + "protocol.TokenizeRequest", attributes=("prompt", "messages")),
    HostName(_OPENAI + "protocol.TokenizeResponse", attributes=("tokens",)),
    HostName(
        _OPENAI + "serving_tokenize.OpenAIServingTokenize.handle_request",
        ("self", "request", "raw_request"),
    ),
    HostName(_MESSAGES + "SetInternalStateReq", attributes=("server_args",)),
    HostName(_MESSAGES + "SetInternalStateReqOutput", attributes=("updated",)),
    HostName(_TOKENIZER, attributes=("server_args", "tokenizer")),
    HostName(_TOKENIZER + ".auto_create_handle_loop", ("self",)),
    HostName(_TOKENIZER + ".get_internal_state", ("self",)),
    HostName(_TOKENIZER + ".set_internal_state", ("self", "obj")),
    HostName(_SRT + "utils.auth.AuthLevel", attributes=("ADMIN_OPTIONAL",)),
    HostName(_SRT + "utils.auth.auth_level", ("level",)),
    HostName(_HTTP, attributes=("app", "_global_state")),
    HostName(_HTTP + "._GlobalState", attributes=("tokenizer_manager",)),
    HostName(_HTTP + "._setup_and_run_http_server", ("server_args",)),
)
"""What a running server tells."""

RELIED_ON: tuple[HostName, ...] = (
    *REGISTERING,
    *SETTINGS,
    *DEVICE,
    *REPLACED,
    *CACHE,
    *TREE,
    *SERVING,
    *TELLING,
)
