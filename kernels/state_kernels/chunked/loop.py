"""One pass of a recurrence over packed sequences, chunk index by chunk index.

Every matrix product has the same shape whatever the sequence's length, and batched products
evaluate each matrix alike in any batch, so a sequence's result does not depend on its neighbours,
nor on cuts at multiples of 64.
"""

from __future__ import annotations

import torch

from state_kernels.chunked.layout import CHUNK, ChunkCaptures, ChunkLayout
from state_kernels.recurrence import InputsT, Recurrence, RowsT

# Chunk-heads prepared at once: enough for batched products, few enough to stay in cache.
SLAB_MATRICES = 64


def run_chunks(
    recurrence: Recurrence[InputsT, RowsT],
    inputs: InputsT,
    layout: ChunkLayout,
    state: torch.Tensor,
    schedule: dict[int, ChunkCaptures],
    pool: torch.Tensor | None,
    chunk_states: torch.Tensor | None,
) -> torch.Tensor:
    """Run all chunks of all sequences and return the packed output ``[T, HV, V]``.

    Parameters
    ----------
    recurrence, inputs
        The rule and its packed inputs.
    layout : ChunkLayout
    state : Tensor ``[N, HV, V, K]``
        Start states by rank; overwritten with the final states.
    schedule : dict
        Captures by chunk index, written to `pool`.
    pool : Tensor ``[slots, HV, V, K]``, optional
    chunk_states : Tensor ``[total_chunks, HV, V, K]``, optional
        Filled with the states at chunk starts.
    """
    output = torch.empty_like(inputs.v)
    for slab in layout.slabs(state.shape[1], SLAB_MATRICES):
        index, exists = layout.tokens(slab)
        rows = recurrence.prepare(_gathered(inputs, index, exists, state.dtype))
        outputs = []
        end = 0
        for chunk in slab:
            start, end = end, end + layout.active(chunk)
            part, live = _part(rows, start, end), state[: end - start]
            if chunk_states is not None:
                chunk_states[layout.rows(chunk)] = live.to(chunk_states.dtype)
            writes, result = recurrence.attend(part, live)
            outputs.append(result)
            wanted = schedule.get(chunk)
            if wanted is not None and pool is not None:
                _capture_inside(recurrence, wanted, part, live, writes, pool)
            recurrence.advance(live, part, writes, cut=None)
            if wanted is not None and pool is not None:
                at_end = wanted.cut == CHUNK
                pool[wanted.slot[at_end]] = state[wanted.rank[at_end]].to(pool.dtype)
        by_token = torch.cat(outputs).transpose(1, 2)
        output[index[exists]] = by_token[exists].to(output.dtype)
    return output


def _part(rows: RowsT, start: int, end: int) -> RowsT:
    return rows.map(lambda x: x[start:end])


def _gathered(
    inputs: InputsT, index: torch.Tensor, exists: torch.Tensor, dtype: torch.dtype
) -> InputsT:
    """Return inputs ``[R, heads, 64, ...]`` in `dtype`, zero where no token exists."""
    complete = bool(exists.all())

    def gather(packed: torch.Tensor) -> torch.Tensor:
        rows = packed[index]
        if not complete:
            rows[~exists] = 0
        return rows.transpose(1, 2).to(dtype).contiguous()

    return inputs.map(gather)


def _capture_inside(
    recurrence: Recurrence[InputsT, RowsT],
    wanted: ChunkCaptures,
    part: RowsT,
    live: torch.Tensor,
    writes: torch.Tensor,
    pool: torch.Tensor,
) -> None:
    """Write the states at cuts inside the chunk."""
    inside = wanted.cut < CHUNK
    rank = wanted.rank[inside]
    if len(rank) == 0:
        return
    state = live[rank]
    recurrence.advance(state, part.map(lambda x: x[rank]), writes[rank], wanted.cut[inside])
    pool[wanted.slot[inside]] = state.to(pool.dtype)
