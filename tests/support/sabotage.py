"""A SGLang plugin of the tests: it spoils states, so that the comparisons are seen to catch it.

It acts on requests of the namespaces below alone (`extra_key`), in the server that loads it.
"""

from __future__ import annotations

from typing import Any

import torch

ZEROS = "sabotage-zeros"
OTHER_PREFIX = "sabotage-other-prefix"
TOO_EARLY = "sabotage-too-early"
WRONG_WINDOW = "sabotage-wrong-window"
ROUNDED = "sabotage-rounded"
NAMESPACES = (ZEROS, OTHER_PREFIX, TOO_EARLY, WRONG_WINDOW, ROUNDED)

GRID = 64


def register() -> None:
    """Wrap the cache's match, which hands a state to a request, and its planning."""
    from sglang_sparse.cache import SparseRadixCache

    match_prefix = SparseRadixCache.match_prefix
    plan_captures = SparseRadixCache.plan_captures

    def spoiling_match(cache: Any, params: Any) -> Any:
        result = match_prefix(cache, params)
        namespace = getattr(params.req, "extra_key", None)
        if namespace in NAMESPACES and params.cow_mamba and result.device_prefix_len > 0:
            _spoil(cache, namespace, params.req.kv.mamba_cow_src_index)
        return result

    def early_captures(cache: Any, req: Any) -> Any:
        captures = plan_captures(cache, req)
        if req.extra_key != TOO_EARLY:
            return captures
        pending = cache._plans[req].pending
        early = [capture._replace(start=capture.start + GRID) for capture in captures]
        for capture, spoilt in zip(captures, early, strict=True):
            pending[next(i for i, each in enumerate(pending) if each is capture)] = spoilt
        return [capture for capture in early if capture.depth > capture.start]

    SparseRadixCache.match_prefix = spoiling_match  # type: ignore[assignment, method-assign]
    SparseRadixCache.plan_captures = early_captures  # type: ignore[assignment, method-assign]


def _spoil(cache: Any, namespace: str, slot: torch.Tensor) -> None:
    state = cache.req_to_token_pool.mamba_pool.mamba_cache
    if namespace == ZEROS:
        state.temporal[:, slot] = 0
    elif namespace == OTHER_PREFIX:
        others = [other for other in cache.all_mamba_values_flatten().tolist() if other != slot]
        state.temporal[:, slot] = state.temporal[:, others[:1]]
    elif namespace == WRONG_WINDOW:
        state.conv[0][:, slot] = state.conv[0][:, slot].roll(1, dims=-1)
    elif namespace == ROUNDED:
        state.temporal[:, slot] = state.temporal[:, slot].bfloat16().to(state.temporal.dtype)
