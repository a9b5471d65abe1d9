"""The recurrence of one prefill pass, with states written at chosen depths, on any device.

The same code runs on a CPU and on a GPU; `state_kernels` chooses the kernel. What of a pass is the
same in each layer is read once, from the first: waiting for a GPU there is one wait a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from state_kernels import Captures, gated_delta_rule


class RowCapture(NamedTuple):
    """One state to write in a forward pass: of row `sequence`, after `depth` of its tokens there.

    `slot` is a tensor of one element, the state pool's index.
    """

    sequence: int
    depth: int
    slot: torch.Tensor


class Tracked(NamedTuple):
    """The states that SGLang itself keeps of a pass, inside its rows: `rows` and rows of the pool.

    They are handed to it in a buffer with one state a row.
    """

    rows: torch.Tensor
    pool_rows: torch.Tensor


@dataclass(frozen=True)
class Batch:
    """What the layers of one forward pass share.

    Attributes
    ----------
    cu_seqlens : Tensor ``[N + 1]``, int64, on the CPU
    windows : Captures
        Those whose convolution window is written.
    states : Captures
        Those whose state is written: the same, and the ones that SGLang tracks.
    tracked : Tracked, optional
    sequences : Tensor ``[M]``, int64
        Those that have a state; the others are padding.
    pool_rows : Tensor ``[M]``, int64
        Their rows of the pool.
    """

    cu_seqlens: torch.Tensor
    windows: Captures
    states: Captures
    tracked: Tracked | None
    sequences: torch.Tensor
    pool_rows: torch.Tensor


def read_batch(
    metadata: Any,
    chunk: int,
    captures: Sequence[RowCapture],
    translate: Callable[[torch.Tensor], torch.Tensor],
) -> Batch:
    """Read a pass from the attention back end's `metadata`.

    `chunk` is the number of tokens in which it counts the states that it tracks; `translate` maps
    slots' ids to rows of the pool.
    """
    windows = Captures(
        sequence=torch.tensor([capture.sequence for capture in captures], dtype=torch.int64),
        depth=torch.tensor([capture.depth for capture in captures], dtype=torch.int64),
        slot=translate(torch.cat([capture.slot for capture in captures])).cpu().long()
        if captures
        else torch.zeros(0, dtype=torch.int64),
    )
    states, tracked = windows, None
    if metadata.has_mamba_track_mask and metadata.track_ssm_h_src.numel() > 0:
        rows = metadata.track_ssm_h_batch_src.long()
        depths = metadata.track_chunk_idx.long()[rows] * chunk
        # At depth 0 the tracked state is the one that the sequence starts from.
        computed = depths > 0
        tracked = Tracked(rows[computed], metadata.track_ssm_h_dst.long()[computed])
        states = Captures(
            sequence=torch.cat([windows.sequence, tracked.rows.cpu()]),
            depth=torch.cat([windows.depth, depths[computed].cpu()]),
            slot=torch.cat([windows.slot, tracked.pool_rows.cpu()]),
        )
    pool_rows = metadata.mamba_cache_indices.long()
    sequences = (pool_rows >= 0).nonzero(as_tuple=True)[0]
    return Batch(
        cu_seqlens=metadata.query_start_loc.cpu().long(),
        windows=windows,
        states=states,
        tracked=tracked,
        sequences=sequences,
        pool_rows=pool_rows[sequences],
    )


def run(
    batch: Batch,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    pool: torch.Tensor,
    track_state: torch.Tensor | None,
) -> torch.Tensor:
    """Run one layer's gated delta rule, from and to rows of a pool.

    Parameters
    ----------
    batch : Batch
    q, k : Tensor ``[1, T, H, K]``
    v : Tensor ``[1, T, HV, V]``
    g, beta : Tensor ``[1, T, HV]``
        Tokens past the last sequence are padding.
    pool : Tensor ``[rows, HV, V, K]``
        Final states and captured ones are written to their rows.
    track_state : Tensor ``[N, HV, V, K]``, optional
        Takes the tracked states, one a sequence.

    Returns
    -------
    Tensor ``[1, T, HV, V]``
        In q's dtype; zero for padding.
    """
    tokens = int(batch.cu_seqlens[-1])
    start = pool.new_zeros((len(batch.cu_seqlens) - 1, *pool.shape[1:]))
    start[batch.sequences] = pool[batch.pool_rows]
    result = gated_delta_rule(
        *(x[0, :tokens] for x in (q, k, v, g, beta)),
        cu_seqlens=batch.cu_seqlens,
        initial_state=start,
        captures=batch.states,
        pool=pool,
        qk_l2norm=True,
    )
    pool[batch.pool_rows] = result.final_state[batch.sequences].to(pool.dtype)
    if track_state is not None and batch.tracked is not None:
        track_state.copy_(start)
        track_state[batch.tracked.rows] = pool[batch.tracked.pool_rows].to(track_state.dtype)
    output = q.new_zeros(v.shape)
    output[0, :tokens] = result.output.to(q.dtype)
    return output
