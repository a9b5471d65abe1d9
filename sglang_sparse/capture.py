"""Depths ride with a batch into its forward pass, where the kernels write their states to slots.

The hooks here stand in the order in which SGLang calls them: a batch is prepared, its forward
pass begins, and in each recurrent layer first the convolution window and then the recurrent state
at every depth is written. All of it happens on the scheduler's thread of one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from sglang_sparse.recurrence import Batch, RowCapture, read_batch, run
from state_kernels import capture_windows

ATTRIBUTE = "sparse_captures"


class _Pass:
    """The forward pass that runs now, None between passes."""

    captures: Sequence[RowCapture] | None = None
    batch: Batch | None = None
    in_layer: Batch | None = None


def prepare_for_extend(original: Callable[..., Any], batch: Any, req: Any) -> Any:
    """Plan a request's states once the batch has its slots.

    SGLang would track the junction *instead* of the end, and publish no KV beyond it. The
    junction is one of ours, so SGLang is told of none.
    """
    req.mamba_branching_seqlen = None
    entry = original(batch, req)
    planned = batch.tree_cache.plan_captures(req)
    if planned:
        batch.__dict__.setdefault(ATTRIBUTE, []).extend((req, capture) for capture in planned)
    return entry


def forward_batch_generation(
    original: Callable[..., Any], worker: Any, batch: Any, *args: Any, **kwargs: Any
) -> Any:
    """Run the forward pass with the batch's captures at hand."""
    row_of = {id(req): row for row, req in enumerate(batch.reqs)}
    planned = [
        (req, capture)
        for req, capture in batch.__dict__.pop(ATTRIBUTE, ())
        if id(req) in row_of and batch.tree_cache.still_pending(req, capture)
    ]
    _Pass.captures = [
        RowCapture(row_of[id(req)], capture.depth - capture.start, capture.slot)
        for req, capture in planned
    ]
    try:
        result = original(worker, batch, *args, **kwargs)
    finally:
        _Pass.captures = _Pass.batch = None
    for req, capture in planned:
        batch.tree_cache.mark_written(req, capture)
    return result


def gdn_forward_extend(
    original: Callable[..., Any],
    backend: Any,
    layer: Any,
    forward_batch: Any,
    mixed_qkv: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Write one layer's convolution windows, and hand its batch on to the recurrence.

    The windows hold inputs from before the convolution, which only this call has, and a window
    may reach into the one that the request resumed with, which the call overwrites. Passes without
    captures are left to SGLang on a CPU, whose kernel there is the same; on a GPU every one of
    ours runs, so that no output depends on what is captured beside it.
    """
    if _Pass.captures is None or not (_Pass.captures or mixed_qkv.is_cuda):
        return original(backend, layer, forward_batch, mixed_qkv, *args, **kwargs)
    metadata = backend.forward_metadata
    if _Pass.batch is None:
        _Pass.batch = read_batch(
            metadata, backend.mamba_chunk_size, _Pass.captures, backend._translate_mamba_indices
        )
    windows = backend.req_to_token_pool.mamba2_layer_cache(layer.layer_id).conv[0]
    if _Pass.captures:
        resumed = (forward_batch.extend_prefix_lens > 0).to(windows.dtype)
        capture_windows(
            mixed_qkv[: int(_Pass.batch.cu_seqlens[-1])],
            cu_seqlens=_Pass.batch.cu_seqlens,
            initial_window=windows[metadata.mamba_cache_indices] * resumed[:, None, None],
            captures=_Pass.batch.windows,
            pool=windows,
        )
    kernel = backend.kernel_dispatcher.extend_kernel
    # So that SGLang asks for the states that it tracks alone, and not for one of every chunk.
    snapshots = kernel.supports_track_state_snapshot
    kernel.supports_track_state_snapshot = True
    _Pass.in_layer = _Pass.batch
    try:
        return original(backend, layer, forward_batch, mixed_qkv, *args, **kwargs)
    finally:
        _Pass.in_layer = None
        kernel.supports_track_state_snapshot = snapshots


def gdn_extend(
    original: Callable[..., Any],
    dispatcher: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    ssm_states: torch.Tensor,
    track_state: torch.Tensor | None = None,
    **kwargs: Any,
) -> Any:
    """Run one layer's recurrence with the kernel that also writes the captured states.

    What else `kwargs` holds is of the pass, and known, or for kernels that the start refuses.
    """
    if _Pass.in_layer is None:
        return original(
            dispatcher, q, k, v, g, beta, ssm_states=ssm_states, track_state=track_state, **kwargs
        )
    return run(_Pass.in_layer, q, k, v, g, beta, ssm_states, track_state), None, None
