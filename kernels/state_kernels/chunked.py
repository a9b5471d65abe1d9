"""The gated delta rule in chunks of 64 tokens.

Inside a chunk with start state S, log decays summed to G_i, the corrected values are
``D = (I + A)^-1 (beta (V - exp(G) K S^T))`` with ``A_ij = beta_i exp(G_i - G_j) k_i . k_j`` for
``j < i`` (the UT transform; Yang, Wang, Zhang, Shen, Kim, "Parallelizing Linear Transformers with
the Delta Rule over Sequence Length", arXiv 2406.06484). Then
``O = exp(G) Q S^T + (Q K^T * exp(G_i - G_j)) D`` and the state after i tokens is
``exp(G_i) S + sum_{j <= i} exp(G_i - G_j) d_j k_j^T``.

Every matrix product has the same shape whatever the sequence's length, and batched products
evaluate each matrix alike in any batch, so a sequence's result does not depend on its neighbours,
nor on cuts at multiples of 64.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from state_kernels.chunk_layout import CHUNK, ChunkCaptures, ChunkLayout
from state_kernels.numerics import l2_normalize

# Chunk-heads prepared at once: enough for batched products, few enough to stay in cache.
SLAB_MATRICES = 64


class PackedInputs(NamedTuple):
    """Packed q, k ``[T, H, K]``, v ``[T, HV, V]``, g and beta ``[T, HV]``, and how to read them."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    beta: torch.Tensor
    scale: float
    qk_l2norm: bool
    dtype: torch.dtype


class ChunkRows(NamedTuple):
    """What a chunk contributes apart from its start state; one row a chunk.

    `keys_queries` ``[R, HV, 128, K]`` holds the keys, then the scaled queries; `log_decay` and
    `beta` are ``[R, HV, 64]``; `inverse` and `attention` ``[R, HV, 64, 64]``.
    """

    keys_queries: torch.Tensor
    values: torch.Tensor
    log_decay: torch.Tensor
    beta: torch.Tensor
    inverse: torch.Tensor
    attention: torch.Tensor

    def part(self, start: int, end: int) -> ChunkRows:
        """Return rows ``start..end - 1``."""
        return ChunkRows(*(x[start:end] for x in self))

    def pick(self, rows: torch.Tensor) -> ChunkRows:
        """Return the given rows."""
        return ChunkRows(*(x[rows] for x in self))


def run_chunks(
    inputs: PackedInputs,
    layout: ChunkLayout,
    state: torch.Tensor,
    schedule: dict[int, ChunkCaptures],
    pool: torch.Tensor | None,
    chunk_states: torch.Tensor | None,
) -> torch.Tensor:
    """Run all chunks of all sequences and return the packed output ``[T, HV, V]``.

    Parameters
    ----------
    inputs : PackedInputs
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
        rows = prepare_rows(inputs, index, exists)
        outputs = []
        end = 0
        for chunk in slab:
            start, end = end, end + layout.active(chunk)
            part, live = rows.part(start, end), state[: end - start]
            if chunk_states is not None:
                chunk_states[layout.rows(chunk)] = live.to(chunk_states.dtype)
            corrected, result = attend(part, live)
            outputs.append(result)
            wanted = schedule.get(chunk)
            if wanted is not None and pool is not None:
                _capture_inside(wanted, part, live, corrected, pool)
            state_after(live, part, corrected, cut=None)
            if wanted is not None and pool is not None:
                at_end = wanted.cut == CHUNK
                pool[wanted.slot[at_end]] = state[wanted.rank[at_end]].to(pool.dtype)
        by_token = torch.cat(outputs).transpose(1, 2)
        output[index[exists]] = by_token[exists].to(output.dtype)
    return output


def prepare_rows(inputs: PackedInputs, index: torch.Tensor, exists: torch.Tensor) -> ChunkRows:
    """Gather a slab's tokens and do all work that needs no state."""
    q, k, v, g, beta = (
        _gather(x, index, exists, inputs.dtype)
        for x in (inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta)
    )
    if inputs.qk_l2norm:
        q, k = l2_normalize(q), l2_normalize(k)
    keys_queries = torch.cat([k, q * inputs.scale], dim=2)
    products = _matmul(keys_queries, k.transpose(2, 3))
    repeat = v.shape[1] // k.shape[1]
    if repeat > 1:
        keys_queries = keys_queries.repeat_interleave(repeat, dim=1)
        products = products.repeat_interleave(repeat, dim=1)
    key_products, query_products = products[:, :, :CHUNK], products[:, :, CHUNK:]

    log_decay = g.cumsum(dim=-1)
    # Differences above the diagonal may overflow, and are not used.
    decay = (log_decay[..., :, None] - log_decay[..., None, :]).tril_().exp_()
    attention = (query_products * decay).tril_()
    system = decay.mul_(key_products).mul_(beta[..., None])
    return ChunkRows(keys_queries, v, log_decay, beta, unit_lower_inverse(system), attention)


def attend(rows: ChunkRows, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the corrected values and the output, both ``[R, HV, 64, V]``, from start states."""
    from_state = _matmul(rows.keys_queries, state.transpose(2, 3))
    from_state.view(*from_state.shape[:2], 2, CHUNK, -1).mul_(
        rows.log_decay.exp()[:, :, None, :, None]
    )
    error = (rows.values - from_state[:, :, :CHUNK]).mul_(rows.beta[..., None])
    corrected = _matmul(rows.inverse, error)
    output = _matmul(rows.attention, corrected).add_(from_state[:, :, CHUNK:])
    return corrected, output


def state_after(
    state: torch.Tensor, rows: ChunkRows, corrected: torch.Tensor, cut: torch.Tensor | None
) -> None:
    """Advance start states ``[R, HV, V, K]`` in place to their chunk's end, or to a cut inside.

    `cut` ``[R]`` counts the tokens of each row's chunk that enter; the state there is exact.
    """
    log_decay = rows.log_decay
    if cut is None:
        until = log_decay[..., -1:]
        remaining = until - log_decay
    else:
        last = (cut - 1)[:, None, None].expand(*log_decay.shape[:2], 1)
        until = log_decay.gather(2, last)
        outside = torch.arange(CHUNK, device=cut.device) >= cut[:, None, None]
        remaining = (until - log_decay).masked_fill_(outside, -torch.inf)
    weighted = corrected * remaining.exp_()[..., None]
    keys = rows.keys_queries[:, :, :CHUNK]
    state.mul_(until.exp()[..., None])
    state.add_(_matmul(weighted.transpose(2, 3), keys))


def unit_lower_inverse(lower: torch.Tensor) -> torch.Tensor:
    """Return ``(I + lower)^-1`` for matrices ``[..., 64, 64]``, read below the diagonal only.

    Diagonal blocks are inverted and joined in pairs, twice the size each time:
    ``[[P, 0], [L, Q]]^-1 = [[P^-1, 0], [-Q^-1 L P^-1, Q^-1]]``.
    """
    size = lower.shape[-1]
    place = torch.arange(size, device=lower.device)
    pairs = (place[:, None] // 2 == place // 2) & (place[:, None] > place)
    inverse = torch.where(pairs, -lower, torch.eye(size, dtype=lower.dtype, device=lower.device))
    half = 2
    while half < size:
        source, target = _diagonal_blocks(lower, 2 * half), _diagonal_blocks(inverse, 2 * half)
        upper_left, lower_right = target[..., :half, :half], target[..., half:, half:]
        joined = _matmul(_matmul(lower_right, source[..., half:, :half]), upper_left)
        target[..., half:, :half] = joined.neg_()
        half *= 2
    return inverse


def _diagonal_blocks(matrices: torch.Tensor, size: int) -> torch.Tensor:
    """View the diagonal blocks ``[..., blocks, size, size]`` of square matrices."""
    *batch, full, _ = matrices.shape
    blocks = full // size
    tiled = matrices.view(*batch, blocks, size, blocks, size)
    return tiled.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    # A batch of one has to take the same routine as any other, so always bmm.
    product = torch.bmm(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]))
    return product.view(*a.shape[:-1], b.shape[-1])


def _gather(
    packed: torch.Tensor, index: torch.Tensor, exists: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Return ``[R, heads, 64, ...]`` in `dtype`, zero where no token exists."""
    rows = packed[index]
    if not exists.all():
        rows[~exists] = 0
    return rows.transpose(1, 2).to(dtype).contiguous()


def _capture_inside(
    wanted: ChunkCaptures,
    part: ChunkRows,
    live: torch.Tensor,
    corrected: torch.Tensor,
    pool: torch.Tensor,
) -> None:
    """Write the states at cuts inside the chunk."""
    inside = wanted.cut < CHUNK
    rank = wanted.rank[inside]
    if len(rank) == 0:
        return
    state = live[rank]
    state_after(state, part.pick(rank), corrected[rank], wanted.cut[inside])
    pool[wanted.slot[inside]] = state.to(pool.dtype)
