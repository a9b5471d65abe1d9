"""The gated delta rule over packed sequences, with states captured at chosen depths."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from state_kernels.checks import (
    check_captures,
    check_cu_seqlens,
    check_heads,
    check_slots,
    check_state,
)
from state_kernels.chunk_layout import ChunkLayout, schedule_captures
from state_kernels.chunked import PackedInputs, run_chunks
from state_kernels.numerics import compute_dtype, l2_normalize
from state_kernels.records import Captures, GatedDeltaResult
from state_kernels.reference import reference_gated_delta_rule

Implementation = Literal["auto", "reference", "chunked"]


class ChunkStatesResult(NamedTuple):
    """A `GatedDeltaResult` with `chunk_states` ``[total_chunks, HV, V, K]`` at chunk starts."""

    output: torch.Tensor
    final_state: torch.Tensor
    chunk_states: torch.Tensor


def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    captures: Captures | None = None,
    pool: torch.Tensor | None = None,
    scale: float | None = None,
    qk_l2norm: bool = False,
    implementation: Implementation = "auto",
) -> GatedDeltaResult:
    """Run the gated delta rule over packed sequences, keeping states at chosen depths.

    For each value head: ``S <- exp(g) S``; ``S <- S + beta (v - S k) k^T``; ``o = S (scale q)``.
    Value head i reads query/key head ``i // (HV // H)``.

    Parameters
    ----------
    q, k : Tensor ``[T, H, K]``
    v : Tensor ``[T, HV, V]``, HV a multiple of H
    g : Tensor ``[T, HV]``
        Log decay, at most 0.
    beta : Tensor ``[T, HV]``
    cu_seqlens : Tensor ``[N + 1]``, integer
        Cumulative sequence lengths.
    initial_state : Tensor ``[N, HV, V, K]``, optional
        State before each sequence's first token; zeros if not given.
    captures : Captures, optional
        States to write to `pool` in this pass, any depths 1..length.
    pool : Tensor ``[slots, HV, V, K]``, optional
        Receives the captured states in its own dtype; no other row is touched.
    scale : float, optional
        Factor of q; ``K ** -0.5`` if not given.
    qk_l2norm : bool
        Normalise q and k along K first (epsilon 1e-6 under the root).
    implementation : {"auto", "reference", "chunked"}
        "auto" is "chunked".

    Returns
    -------
    GatedDeltaResult

    Raises
    ------
    ValueError
        If shapes, cumulative lengths, captures or the implementation's name do not fit.

    Notes
    -----
    Computes in float32, or in float64 if any of q, k, v is float64. O(T) matrix work in chunks of
    64. On a CPU the result of a sequence is bit-identical in any batch, and when it is cut at a
    multiple of 64 and resumed from the float32 state captured there.
    """
    if implementation not in ("auto", "reference", "chunked"):
        raise ValueError(
            f"implementation: got {implementation!r}; need 'auto', 'reference' or 'chunked'; "
            "leave it out for the fast one"
        )
    if implementation == "reference":
        check_cu_seqlens(cu_seqlens, q.shape[0])
        check_heads(q, k, v, g, beta)
        row = (v.shape[1], v.shape[2], k.shape[2])
        if initial_state is not None:
            check_state("initial_state", initial_state, (len(cu_seqlens) - 1, *row))
        check_captures(captures, pool, cu_seqlens, row)
        return reference_gated_delta_rule(
            q,
            k,
            v,
            g,
            beta,
            cu_seqlens=cu_seqlens,
            initial_state=initial_state,
            captures=captures,
            pool=pool,
            scale=scale,
            qk_l2norm=qk_l2norm,
        )
    inputs, layout, state = _prepare(q, k, v, g, beta, cu_seqlens, initial_state, scale, qk_l2norm)
    check_captures(captures, pool, cu_seqlens, tuple(state.shape[1:]))
    schedule = {} if captures is None else schedule_captures(captures, layout)
    output = run_chunks(inputs, layout, state, schedule, pool, None)
    return GatedDeltaResult(output, state[layout.rank.to(state.device)])


def gated_delta_rule_with_chunk_states(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    captures: Captures | None = None,
    pool: torch.Tensor | None = None,
    scale: float | None = None,
    qk_l2norm: bool = False,
) -> ChunkStatesResult:
    """Run the chunked gated delta rule and return the state at the start of every chunk.

    Parameters are those of `gated_delta_rule`.

    Returns
    -------
    ChunkStatesResult
        `chunk_states` is ordered by sequence, then by chunk, and has the computation's dtype:
        ``ceil(length / 64)`` states a sequence.

    Raises
    ------
    ValueError
        If shapes, cumulative lengths or captures do not fit.
    """
    inputs, layout, state = _prepare(q, k, v, g, beta, cu_seqlens, initial_state, scale, qk_l2norm)
    check_captures(captures, pool, cu_seqlens, tuple(state.shape[1:]))
    schedule = {} if captures is None else schedule_captures(captures, layout)
    chunk_states = state.new_empty((layout.total_chunks, *state.shape[1:]))
    output = run_chunks(inputs, layout, state, schedule, pool, chunk_states)
    return ChunkStatesResult(output, state[layout.rank.to(state.device)], chunk_states)


def gated_delta_rule_step(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    pool: torch.Tensor,
    slots: torch.Tensor,
    scale: float | None = None,
    qk_l2norm: bool = False,
) -> torch.Tensor:
    """Advance one token for each row, in place on the pool.

    Parameters
    ----------
    q, k : Tensor ``[B, H, K]``
    v : Tensor ``[B, HV, V]``
    g, beta : Tensor ``[B, HV]``
    pool : Tensor ``[rows, HV, V, K]``
        Rows named by `slots` are read and overwritten in the pool's dtype.
    slots : Tensor ``[B]``, integer
        Negative values are padding: nothing is read or written and the output is zero. Two rows
        must not share a slot.
    scale, qk_l2norm
        As in `gated_delta_rule`.

    Returns
    -------
    Tensor ``[B, HV, V]``
        In v's dtype. A row's result is bit-identical in any batch on a CPU.

    Raises
    ------
    ValueError
        If shapes do not fit or a slot is past the pool's end.
    """
    check_heads(q, k, v, g, beta)
    check_state("pool", pool, (pool.shape[0], v.shape[1], v.shape[2], k.shape[2]))
    check_slots(slots, q.shape[0], pool.shape[0])
    output = torch.zeros_like(v)
    used = slots >= 0
    rows = slots[used].long()
    if len(rows) == 0:
        return output
    dtype = compute_dtype(q, k, v)
    query, key, value, decay, rate = (x[used].to(dtype) for x in (q, k, v, g, beta))
    if qk_l2norm:
        query, key = l2_normalize(query), l2_normalize(key)
    query = query * (k.shape[-1] ** -0.5 if scale is None else scale)
    repeat = v.shape[1] // q.shape[1]
    query, key = (x.repeat_interleave(repeat, dim=1)[:, :, None, :] for x in (query, key))

    # Sums of products, not batched products: those differ in the last bits for a batch of one.
    state = pool[rows].to(dtype) * decay.exp()[..., None, None]
    error = (value - (state * key).sum(dim=-1)) * rate[..., None]
    state.add_(error[..., None] * key)
    output[used] = (state * query).sum(dim=-1).to(v.dtype)
    pool[rows] = state.to(pool.dtype)
    return output


def _prepare(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None,
    scale: float | None,
    qk_l2norm: bool,
) -> tuple[PackedInputs, ChunkLayout, torch.Tensor]:
    """Check the arguments and return packed inputs, layout and start states by rank."""
    bounds = check_cu_seqlens(cu_seqlens, q.shape[0])
    check_heads(q, k, v, g, beta)
    layout = ChunkLayout(bounds, q.device)
    dtype = compute_dtype(q, k, v)
    shape = (len(bounds) - 1, v.shape[1], v.shape[2], k.shape[2])
    if initial_state is None:
        state = q.new_zeros(shape, dtype=dtype)
    else:
        check_state("initial_state", initial_state, shape)
        state = initial_state[layout.order.to(q.device)].to(dtype).contiguous()
    factor = k.shape[-1] ** -0.5 if scale is None else scale
    return PackedInputs(q, k, v, g, beta, factor, qk_l2norm, dtype), layout, state
