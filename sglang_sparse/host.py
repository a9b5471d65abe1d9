"""Every name of SGLang that this plugin relies on, checked at start.

SGLang's internals change between releases without notice. A name that moved, or a parameter that
went, stops the start here with a line that says which.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib.metadata import version
from typing import NamedTuple

VERSION = "0.5.23"


class HostName(NamedTuple):
    """A dotted name, and the parameters it must take, in this order among others."""

    name: str
    parameters: tuple[str, ...] = ()


_SRT = "sglang.srt."
_CACHE = _SRT + "mem_cache.unified_radix_cache.UnifiedRadixCache."
_CORE = _SRT + "mem_cache.unified_cache.unified_tree_core.UnifiedTreeCore."
_COMPONENT = _SRT + "mem_cache.unified_cache.components.mamba.MambaComponent."
_GDN = _SRT + "layers.attention.linear.gdn_backend."

RELIED_ON: tuple[HostName, ...] = (
    HostName(_SRT + "mem_cache.registry.create_unified_radix_cache", ("ctx", "cache_class")),
    HostName(_SRT + "runtime_context.mamba_checkpoint_grid", ("tree_page",)),
    HostName(_CACHE + "match_prefix", ("params",)),
    HostName(_CACHE + "checkpoint_into_tree", ("req", "up_to")),
    HostName(_CACHE + "on_release", ("req", "checkpointed")),
    HostName(_CACHE + "evict", ("params",)),
    HostName(_CACHE + "reset"),
    HostName(_CACHE + "mamba_evictable_size"),
    HostName(_CACHE + "mamba_protected_size"),
    HostName(_CACHE + "all_mamba_values_flatten"),
    HostName(_CORE + "node_by_id", ("node_id",)),
    HostName(_CORE + "_split_node", ("key", "child", "split_len")),
    HostName(_CORE + "set_component_device_value", ("node_id", "component_type", "value")),
    HostName(_CORE + "get_component_device_value", ("node_id", "component_type")),
    HostName(
        _CORE + "_evict_component_and_detach_lru",
        ("node", "comp", "device_frees", "host_frees", "cache_actions", "target", "tracker"),
    ),
    HostName(_CORE + "_update_evictable_leaf_sets", ("node",)),
    HostName(_CORE + "_collect_all_nodes"),
    HostName(_CORE + "sanity_check", ("ongoing_write_through", "ongoing_load_back")),
    HostName(
        _COMPONENT + "commit_insert_component_data",
        ("node", "is_new_leaf", "params", "result", "cache_actions"),
    ),
    HostName(_COMPONENT + "redistribute_on_node_split", ("new_parent", "child")),
    HostName(
        _COMPONENT + "evict_component",
        ("node", "device_frees", "host_frees", "cache_actions", "target"),
    ),
    HostName(_COMPONENT + "_evict_device_start", ("request_cnt",)),
    HostName(
        _COMPONENT + "_evict_device_next_node",
        ("tracker", "device_frees", "host_frees", "cache_actions"),
    ),
    HostName(_COMPONENT + "_evict_device_end"),
    HostName(
        _SRT + "managers.schedule_batch.ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend",
        ("self", "req"),
    ),
    HostName(_SRT + "managers.tp_worker.TpModelWorker.forward_batch_generation", ("self", "batch")),
    HostName(
        _GDN + "GDNAttnBackend.forward_extend", ("self", "layer", "forward_batch", "mixed_qkv")
    ),
    HostName(
        _GDN + "GDNKernelDispatcher.extend",
        ("self", "q", "k", "v", "g", "beta", "ssm_states", "cache_indices", "query_start_loc"),
    ),
    HostName(_SRT + "managers.scheduler.Scheduler.get_internal_state", ("self", "recv_req")),
    HostName(_SRT + "managers.scheduler.Scheduler.set_internal_state", ("self", "recv_req")),
    HostName(_SRT + "managers.scheduler.Scheduler.collect_inflight_reqs"),
)


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
    parameters = iter(inspect.signature(inspect.unwrap(found)).parameters)
    if not all(name in parameters for name in relied_on.parameters):
        return f"the signature {inspect.signature(found)}"
    return None
