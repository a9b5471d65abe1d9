"""Decay inside chunks: log decays ``[R, HV, 64, 1]`` of heads, or ``[R, HV, 64, K]`` of keys.

They are summed from the chunk's start, in float64: a difference of float32 sums would have lost
the small decays that follow strong ones.
"""

from __future__ import annotations

import torch

from state_kernels.chunked.layout import CHUNK
from state_kernels.chunked.products import add_matmul, diagonal_blocks, matmul

FORGETS_ALL = -1000.0
"""A log decay that leaves nothing of a state, in float64 too."""


def summed(log_decay: torch.Tensor) -> torch.Tensor:
    """Return the log decay from the chunk's start to after each token, float64.

    A token's decay below `FORGETS_ALL`, minus infinity too, counts as that: it would take the small
    decays around it out of the sums, or make their differences NaN.
    """
    return log_decay.double().clamp(min=FORGETS_ALL).cumsum(dim=2)


def from_start(log_decay: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return what a chunk's start state has decayed to after each token, from summed log decays."""
    return log_decay.to(dtype).exp()


def decayed_products(
    left: torch.Tensor, right: torch.Tensor, log_decay: torch.Tensor
) -> torch.Tensor:
    """Return ``sum_k left_ik exp(G_ik - G_jk) right_jk`` for the tokens ``j <= i`` of a chunk.

    Parameters
    ----------
    left : Tensor ``[R, H, n 64, K]``
        Vectors of the later token; n kinds of them in turn.
    right : Tensor ``[R, H, m 64, K]``
        Vectors of the earlier token; m kinds of them in turn.
    log_decay : Tensor ``[R, HV, 64, 1 or K]``
        Summed log decays G.

    Returns
    -------
    Tensor ``[R, HV, n, m, 64, 64]``
        Zero above the diagonal.
    """
    repeat = log_decay.shape[1] // left.shape[1]
    if log_decay.shape[-1] > 1:
        left, right = (x.repeat_interleave(repeat, dim=1) for x in (left, right))
        return _products_with_key_decays(by_kind(left), by_kind(right), log_decay)
    products = matmul(left, right.transpose(2, 3))
    by_kinds = products.view(*left.shape[:2], -1, CHUNK, right.shape[2] // CHUNK, CHUNK)
    sums = log_decay[..., 0]
    # Above the diagonal they may overflow, and are not used.
    decay = (sums[..., :, None] - sums[..., None, :]).to(left.dtype).exp_()[:, :, None, None]
    by_kinds = by_kinds.transpose(3, 4)
    decayed = by_kinds.repeat_interleave(repeat, dim=1) if repeat > 1 else by_kinds.contiguous()
    decayed.mul_(decay).flatten(0, 3).tril_()
    return decayed


def _products_with_key_decays(
    left: torch.Tensor, right: torch.Tensor, log_decay: torch.Tensor
) -> torch.Tensor:
    """Return decayed products of ``[R, HV, n, 64, K]`` and ``[R, HV, m, 64, K]``.

    Blocks of 1, 2, .. 32 tokens are multiplied with the block before them: the later tokens'
    vectors decayed from the boundary between the two, the earlier tokens' decayed to it. So decays
    are only ever multiplied, never divided by, and none can overflow; from one size of block to
    the next, vectors decay by one block more.
    """
    rows, heads, kinds = left.shape[:3]
    products = left.new_zeros(rows, heads, kinds, right.shape[2], CHUNK, CHUNK)
    same_token = (left[:, :, :, None] * right[:, :, None]).sum(dim=-1)
    products.diagonal(dim1=-2, dim2=-1).copy_(same_token)

    decay = torch.cat([log_decay[:, :, :1], log_decay.diff(dim=2)], dim=2).to(left.dtype).exp_()
    from_boundary = (left * decay[:, :, None]).transpose(2, 3).contiguous()
    to_boundary = right.transpose(2, 3).clone(memory_format=torch.contiguous_format)
    size = 1
    while size < CHUNK:
        earlier = _pairs(to_boundary, size)[:, :, :, 0]
        later = _pairs(from_boundary, size)[:, :, :, 1]
        joined = matmul(later.flatten(3, 4), earlier.flatten(3, 4).transpose(3, 4))
        joined = joined.view(*later.shape[:5], size, -1)
        target = diagonal_blocks(products, 2 * size)[..., size:, :size]
        target.copy_(joined.permute(0, 1, 4, 6, 2, 3, 5))
        first, second = decay.view(rows, heads, -1, 2, decay.shape[-1]).unbind(dim=3)
        later.mul_(first[:, :, :, None, None])
        earlier.mul_(second[:, :, :, None, None])
        decay = first * second
        size *= 2
    return products


def _pairs(vectors: torch.Tensor, size: int) -> torch.Tensor:
    """View tokens ``[R, HV, 64, ...]`` as pairs of blocks ``[R, HV, pairs, 2, size, ...]``."""
    return vectors.view(*vectors.shape[:2], -1, 2, size, *vectors.shape[3:])


def by_kind(vectors: torch.Tensor) -> torch.Tensor:
    """View ``[R, heads, n 64, K]``, n kinds of vectors in turn, as ``[R, heads, n, 64, K]``."""
    return vectors.view(*vectors.shape[:2], -1, CHUNK, vectors.shape[3])


def advance(
    state: torch.Tensor,
    keys: torch.Tensor,
    writes: torch.Tensor,
    log_decay: torch.Tensor,
    cut: torch.Tensor | None,
) -> None:
    """Decay start states ``[R, HV, V, K]`` in place, and add what the chunk's tokens write.

    Parameters
    ----------
    state : Tensor ``[R, HV, V, K]``
    keys : Tensor ``[R, HV, n 64, K]``
    writes : Tensor ``[R, HV, n 64, V]``
        Token j adds ``writes_j keys_j^T`` for each of n kinds, which later tokens decay.
    log_decay : Tensor ``[R, HV, 64, 1 or K]``
        Summed.
    cut : Tensor ``[R]``, integer, optional
        How many tokens of each chunk enter; all if not given.
    """
    until, remaining = decay_until(log_decay, cut, state.dtype)
    decayed = (by_kind(keys) * remaining[:, :, None]).flatten(2, 3)
    add_matmul(state.mul_(until), writes.transpose(2, 3), decayed)


def decay_until(
    log_decay: torch.Tensor, cut: torch.Tensor | None, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the decay from a chunk's start, and from after each token, to the chunk's end or cut.

    Returns
    -------
    until : Tensor ``[R, HV, 1, 1 or K]``
    remaining : Tensor ``[R, HV, 64, 1 or K]``
        Zero for tokens from the cut on.
    """
    if cut is None:
        until = log_decay[:, :, -1:]
        remaining = until - log_decay
    else:
        last = (cut - 1)[:, None, None, None].expand_as(log_decay[:, :, :1])
        until = log_decay.gather(2, last)
        outside = torch.arange(CHUNK, device=cut.device)[:, None] >= cut[:, None, None, None]
        remaining = (until - log_decay).masked_fill_(outside, -torch.inf)
    return until.to(dtype).exp(), remaining.to(dtype).exp()
