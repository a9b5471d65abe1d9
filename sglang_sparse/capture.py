"""Depths ride with a batch into its forward pass, where the kernels write their states to slots.

The hooks here stand in the order in which SGLang calls them: a batch is prepared, its forward
pass begins, and in each recurrent layer first the convolution window and then the recurrent state
at every depth is written. All of it happens on the scheduler's thread of one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from state_kernels import Captures, capture_windows
from state_kernels.cpu import chunk_gated_delta_rule

ATTRIBUTE = "sparse_captures"


class RowCapture(NamedTuple):
    """One state to write in a forward pass: of row `sequence`, after `depth` of its tokens there.

    `slot` is a tensor of one element, the state pool's index.
    """

    sequence: int
    depth: int
    slot: torch.Tensor


@dataclass
class ForwardCaptures:
    """The states that one forward pass writes, as the kernels take them."""

    rows: Sequence[RowCapture]
    _tensors: Captures | None = field(default=None, init=False)

    def tensors(self, device: torch.device, translate: Callable[..., torch.Tensor]) -> Captures:
        """Return the record for the kernels; built in the first layer, shared by the others.

        `translate` maps the slots' ids to rows of the pool.
        """
        if self._tensors is None:
            self._tensors = Captures(
                sequence=torch.tensor([row.sequence for row in self.rows], device=device),
                depth=torch.tensor([row.depth for row in self.rows], device=device),
                slot=translate(torch.cat([row.slot for row in self.rows])).long(),
            )
        return self._tensors


class _Pass:
    """The forward pass that runs now, None between passes."""

    captures: ForwardCaptures | None = None
    in_layer: Captures | None = None


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
    if not planned:
        return original(worker, batch, *args, **kwargs)
    _Pass.captures = ForwardCaptures(
        [
            RowCapture(row_of[id(req)], capture.depth - capture.start, capture.slot)
            for req, capture in planned
        ]
    )
    try:
        result = original(worker, batch, *args, **kwargs)
    finally:
        _Pass.captures = None
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
    """Write one layer's convolution windows, and hand its captures on to the recurrence.

    The windows hold inputs from before the convolution, which only this call has, and a window
    may reach into the one that the request resumed with, which the call overwrites.
    """
    if _Pass.captures is None:
        return original(backend, layer, forward_batch, mixed_qkv, *args, **kwargs)
    captures = _Pass.captures.tensors(mixed_qkv.device, backend._translate_mamba_indices)
    metadata = backend.forward_metadata
    windows = backend.req_to_token_pool.mamba2_layer_cache(layer.layer_id).conv[0]
    resumed = (forward_batch.extend_prefix_lens > 0).to(windows.dtype)
    capture_windows(
        mixed_qkv,
        cu_seqlens=metadata.query_start_loc.long(),
        initial_window=windows[metadata.mamba_cache_indices] * resumed[:, None, None],
        captures=captures,
        pool=windows,
    )
    _Pass.in_layer = captures
    try:
        return original(backend, layer, forward_batch, mixed_qkv, *args, **kwargs)
    finally:
        _Pass.in_layer = None


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
    cache_indices: torch.Tensor,
    query_start_loc: torch.Tensor,
    **kwargs: Any,
) -> Any:
    """Run one layer's recurrence with the kernel that also writes the captured states.

    What `kwargs` holds is for kernels with checkpoints of their own, which the start refuses.
    """
    if _Pass.in_layer is None:
        return original(
            dispatcher,
            q,
            k,
            v,
            g,
            beta,
            ssm_states=ssm_states,
            cache_indices=cache_indices,
            query_start_loc=query_start_loc,
            **kwargs,
        )
    return chunk_gated_delta_rule(
        q=q,
        k=k,
        v=v,
        g=g,
        beta=beta,
        initial_state=ssm_states,
        initial_state_indices=cache_indices,
        cu_seqlens=query_start_loc,
        use_qk_l2norm_in_kernel=True,
        captures=_Pass.in_layer,
    )
