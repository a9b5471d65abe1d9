"""One pass of a recurrence over packed sequences, chunk index by chunk index.

Every matrix product has the same shape whatever the sequence's length, and batched products
evaluate each matrix of 16-byte rows alike in any batch, so a sequence's result does not depend on
its neighbours (K and V being multiples of 4), nor on cuts at multiples of 64.
"""

from __future__ import annotations

from functools import cache

import torch

from state_kernels.chunked.layout import CHUNK, ChunkCapture, ChunkLayout
from state_kernels.recurrence import InputsT, Recurrence, RowsT

# Chunk-heads prepared at once: enough for batched products, few enough to stay in cache.
SLAB_MATRICES = 64


def run_chunks(
    recurrence: Recurrence[InputsT, RowsT],
    inputs: InputsT,
    layout: ChunkLayout,
    state: torch.Tensor,
    schedule: dict[int, list[ChunkCapture]],
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
        Captures by chunk index.
    chunk_states : Tensor ``[total_chunks, HV, V, K]``, optional
        Filled with the states at chunk starts.
    """
    _keep_freed_memory()
    output = torch.empty_like(inputs.v)
    for slab in layout.slabs(state.shape[1], SLAB_MATRICES):
        tokens = layout.tokens(slab)
        gathered = inputs.map(lambda x, at=tokens: at.gather(x, state.dtype))  # type: ignore[misc]
        rows = recurrence.prepare(gathered)
        end = 0
        for chunk in slab:
            start, end = end, end + layout.active(chunk)
            part, live = _part(rows, start, end), state[: end - start]
            if chunk_states is not None:
                chunk_states[layout.rows(chunk)] = live.to(chunk_states.dtype)
            writes, result = recurrence.attend(part, live)
            tokens.scatter(result, start, output)
            wanted = schedule.get(chunk, ())
            for capture in wanted:
                if capture.cut < CHUNK:
                    _capture_inside(recurrence, capture, part, live, writes)
            recurrence.advance(live, part, writes, cut=None)
            for capture in wanted:
                if capture.cut == CHUNK:
                    capture.target.copy_(state[capture.rank])
    return output


@cache
def _keep_freed_memory() -> None:
    """Let the C library keep what a slab frees for the next slab.

    glibc gives free memory back to the system when it is more than twice the largest block freed
    so far, of at most 32 MB; every page of the next slab would be a page fault, a tenth of the
    time of a pass. Such a block is freed here, untouched.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def _part(rows: RowsT, start: int, end: int) -> RowsT:
    return rows.map(lambda x: x[start:end])


def _capture_inside(
    recurrence: Recurrence[InputsT, RowsT],
    capture: ChunkCapture,
    part: RowsT,
    live: torch.Tensor,
    writes: torch.Tensor,
) -> None:
    """Write the state at a cut inside the chunk."""
    start, end = capture.rank, capture.rank + 1
    state = live[start:end].clone()
    cut = torch.tensor([capture.cut], device=state.device)
    recurrence.advance(state, _part(part, start, end), writes[start:end], cut)
    capture.target.copy_(state[0])
