"""Any recurrence over packed sequences, with states captured at chosen depths."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch

from state_kernels.checks import (
    check_captures,
    check_cu_seqlens,
    check_pool,
    check_slots,
    check_state,
)
from state_kernels.chunked.layout import layout_of, schedule_captures
from state_kernels.chunked.loop import run_chunks
from state_kernels.gpu.availability import require_kernels
from state_kernels.gpu.terms import KernelTerms
from state_kernels.numerics import compute_dtype
from state_kernels.records import Captures, RecurrenceResult
from state_kernels.recurrence import Inputs, InputsT, Recurrence, RowsT
from state_kernels.reference import run_tokens
from state_kernels.tensors import check_devices, check_floating

Implementation = Literal["auto", "reference", "chunked", "triton"]


class ChunkStatesResult(NamedTuple):
    """A `RecurrenceResult` with `chunk_states` ``[total_chunks, HV, V, K]`` at chunk starts."""

    output: torch.Tensor
    final_state: torch.Tensor
    chunk_states: torch.Tensor


@torch.no_grad()
def run(
    recurrence: Recurrence[InputsT, RowsT],
    inputs: InputsT,
    *,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    captures: Captures | None = None,
    pool: torch.Tensor | None = None,
    implementation: Implementation = "auto",
) -> RecurrenceResult:
    """Run a recurrence over packed sequences, keeping states at chosen depths.

    Parameters
    ----------
    recurrence : Recurrence
    inputs : Inputs
        The recurrence's own, packed ``[T, heads, ...]``.
    cu_seqlens : Tensor ``[N + 1]``, integer
        Cumulative sequence lengths.
    initial_state : Tensor ``[N, HV, V, K]``, optional
        State before each sequence's first token; zeros if not given.
    captures : Captures, optional
        States to write to `pool` in this pass, any depths 1..length.
    pool : Tensor ``[slots, HV, V, K]``, optional
        Receives the captured states in its own dtype; no other row is touched.
    implementation : {"auto", "reference", "chunked", "triton"}
        "reference" goes token by token; "triton" needs a GPU. "auto" is "triton" on a GPU for
        inputs that its kernels take, else "chunked".

    Returns
    -------
    RecurrenceResult

    Raises
    ------
    TypeError
        If a tensor or captures are given as anything else.
    ValueError
        If shapes, types, devices, cumulative lengths, captures or the implementation's name do not
        fit. Nothing is written then.

    Notes
    -----
    Computes in float32, or in float64 if any input is float64; no gradient passes. "chunked" is
    O(T) matrix work in chunks of 64. On a CPU its result for a sequence is bit-identical when the
    sequence is cut at a multiple of 64 and resumed from the float32 state captured there, and in
    any batch where K and V are multiples of 4. A NaN or an infinity in a token's vectors spoils the
    outputs and the captured states of its whole chunk there, earlier ones too. A pass does not wait
    for a GPU when `cu_seqlens` and `captures` are on the CPU.
    """
    if implementation not in get_args(Implementation):
        raise ValueError(
            f"implementation: got {implementation!r}; need one of {get_args(Implementation)}; "
            "leave it out for the fast one"
        )
    bounds = _check(recurrence, inputs, cu_seqlens, initial_state, captures, pool)
    terms = _kernel_terms(recurrence, inputs, implementation)
    if terms is not None:
        from state_kernels.gpu.launch import run_kernels  # Imports Triton.

        return run_kernels(terms, tuple(bounds), initial_state, captures, pool)
    state = _start_state(inputs, len(bounds) - 1, initial_state)
    if implementation == "reference":
        output = run_tokens(recurrence, inputs, bounds, state, captures, pool)
        return RecurrenceResult(output, state)
    layout = layout_of(tuple(bounds), state.device)
    state = state[layout.order]
    schedule = schedule_captures(captures, pool, layout)
    output = run_chunks(recurrence, inputs, layout, state, schedule, None)
    return RecurrenceResult(output, state[layout.rank])


@torch.no_grad()
def run_with_chunk_states(
    recurrence: Recurrence[InputsT, RowsT],
    inputs: InputsT,
    *,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    captures: Captures | None = None,
    pool: torch.Tensor | None = None,
) -> ChunkStatesResult:
    """Run a recurrence in chunks and return the state at the start of every chunk.

    Parameters and errors are those of `run`.

    Returns
    -------
    ChunkStatesResult
        `chunk_states` is ordered by sequence, then by chunk, and has the computation's dtype:
        ``ceil(length / 64)`` states a sequence.
    """
    bounds = _check(recurrence, inputs, cu_seqlens, initial_state, captures, pool)
    state = _start_state(inputs, len(bounds) - 1, initial_state)
    layout = layout_of(tuple(bounds), state.device)
    state = state[layout.order]
    schedule = schedule_captures(captures, pool, layout)
    chunk_states = state.new_empty((layout.total_chunks, *state.shape[1:]))
    output = run_chunks(recurrence, inputs, layout, state, schedule, chunk_states)
    return ChunkStatesResult(output, state[layout.rank], chunk_states)


@torch.no_grad()
def step(
    recurrence: Recurrence[InputsT, RowsT],
    inputs: InputsT,
    *,
    pool: torch.Tensor,
    slots: torch.Tensor,
) -> torch.Tensor:
    """Advance one token for each row, in place on a pool of states.

    Parameters
    ----------
    recurrence : Recurrence
    inputs : Inputs
        The recurrence's own, one token a row: ``[B, heads, ...]``.
    pool : Tensor ``[rows, HV, V, K]``
        Rows named by `slots` are read and overwritten in the pool's dtype.
    slots : Tensor ``[B]``, integer
        Negative values are padding: nothing is read or written and the output is zero. Two rows
        must not share a slot.

    Returns
    -------
    Tensor ``[B, HV, V]``
        In v's dtype. A row's result is bit-identical in any batch on a CPU.

    Raises
    ------
    ValueError
        If shapes do not fit or a slot is past the pool's end.
    """
    _check_inputs(recurrence, inputs)
    check_pool(pool, inputs.state_shape)
    check_devices(v=inputs.v, pool=pool)
    check_slots(slots, inputs.v.shape[0], pool.shape[0])
    output = torch.zeros_like(inputs.v)
    used = slots >= 0
    rows = slots[used].long()
    if len(rows) == 0:
        return output
    dtype = compute_dtype(*inputs.tensors())
    state = pool[rows].to(dtype)
    output[used] = recurrence.token(state, inputs.map(lambda x: x[used].to(dtype))).to(output.dtype)
    pool[rows] = state.to(pool.dtype)
    return output


def _check(
    recurrence: Recurrence[InputsT, RowsT],
    inputs: InputsT,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None,
    captures: Captures | None,
    pool: torch.Tensor | None,
) -> list[int]:
    """Check the arguments of a pass and return its cumulative lengths."""
    _check_inputs(recurrence, inputs)
    bounds = check_cu_seqlens(cu_seqlens, len(inputs.v))
    if initial_state is not None:
        check_state("initial_state", initial_state, (len(bounds) - 1, *inputs.state_shape))
    check_devices(v=inputs.v, initial_state=initial_state, pool=pool)
    # Not the tensor given, which may be on a GPU that would be waited for once more.
    check_captures(captures, pool, torch.tensor(bounds), inputs.state_shape)
    return bounds


def _check_inputs(recurrence: Recurrence[InputsT, RowsT], inputs: InputsT) -> None:
    """Raise TypeError or ValueError unless the inputs fit the recurrence and each other."""
    check_floating(**vars(inputs))
    check_devices(**vars(inputs))
    recurrence.check(inputs)
    if 0 in inputs.state_shape:
        raise ValueError(
            f"k and v: got a state of shape {inputs.state_shape}; need no axis of size 0; "
            "give at least one head, and one dimension to keys and values"
        )


def _start_state(
    inputs: Inputs, sequences: int, initial_state: torch.Tensor | None
) -> torch.Tensor:
    """Return a copy of the start states in the computation's dtype."""
    dtype = compute_dtype(*inputs.tensors())
    if initial_state is None:
        return inputs.v.new_zeros((sequences, *inputs.state_shape), dtype=dtype)
    return initial_state.to(dtype, copy=True)


def _kernel_terms(
    recurrence: Recurrence[InputsT, RowsT], inputs: InputsT, implementation: Implementation
) -> KernelTerms | None:
    """Return what Triton kernels are to run on, None if another implementation is to run."""
    automatic = implementation == "auto" and inputs.v.device.type == "cuda"
    if implementation != "triton" and not automatic:
        return None
    try:
        return require_kernels(recurrence.kernel_terms(inputs))
    except ValueError:
        if automatic:
            return None
        raise
