"""Decay inside chunks: log decays ``[R, HV, 64, 1]`` of heads, or ``[R, HV, 64, K]`` of keys.

They are summed from the chunk's start, in float64: a difference of float32 sums would have lost
the small decays that follow strong ones.
"""

from __future__ import annotations

import torch

from state_kernels.chunked.layout import CHUNK
from state_kernels.chunked.products import diagonal_blocks, matmul


def summed(log_decay: torch.Tensor) -> torch.Tensor:
    """Return the log decay from the chunk's start to after each token, float64."""
    return log_decay.double().cumsum(dim=2)


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
    decay = _between(log_decay[..., 0]).to(left.dtype).exp()[:, :, None, None]
    return by_kinds.transpose(3, 4).repeat_interleave(repeat, dim=1).mul_(decay).tril_()


def _products_with_key_decays(
    left: torch.Tensor, right: torch.Tensor, log_decay: torch.Tensor
) -> torch.Tensor:
    """Return decayed products of ``[R, HV, n, 64, K]`` and ``[R, HV, m, 64, K]``.

    Tokens that a boundary of blocks parts are multiplied there: the later one decayed from the
    boundary, the earlier one decayed to it, so that no exponent is above 0 whatever the decays.
    Each pair of tokens is parted once by the boundary in the middle of a block of 64, 32, .. 2.
    """
    products = left.new_zeros(*left.shape[:3], right.shape[2], CHUNK, CHUNK)
    same_token = (left[:, :, :, None] * right[:, :, None]).sum(dim=-1)
    products.diagonal(dim1=-2, dim2=-1).copy_(same_token)
    half = CHUNK // 2
    while half:
        sums, earlier, later = (_halves(x, half) for x in (log_decay, right, left))
        boundary = sums[..., 0, -1:, :]
        until = (boundary - sums[..., 0, :, :]).to(left.dtype).exp_()
        since = (sums[..., 1, :, :] - boundary).to(left.dtype).exp_()
        earlier = earlier[..., 0, :, :].transpose(2, 3) * until[:, :, :, None]
        later = later[..., 1, :, :].transpose(2, 3) * since[:, :, :, None]
        joined = matmul(later.flatten(3, 4), earlier.flatten(3, 4).transpose(3, 4))
        joined = joined.view(*later.shape[:5], -1, half)
        target = diagonal_blocks(products, 2 * half)[..., half:, :half]
        target.copy_(joined.permute(0, 1, 3, 5, 2, 4, 6))
        half //= 2
    return products


def _halves(vectors: torch.Tensor, half: int) -> torch.Tensor:
    """View ``[..., 64, K]`` as the two halves of each block, ``[..., blocks, 2, half, K]``."""
    return vectors.view(*vectors.shape[:-2], -1, 2, half, vectors.shape[-1])


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
    state.mul_(until)
    state.add_(matmul(writes.transpose(2, 3), decayed))


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


def _between(log_decay: torch.Tensor) -> torch.Tensor:
    """Return ``G_i - G_j`` for the tokens j <= i of ``[..., 64]``, and 0 above the diagonal."""
    return (log_decay[..., :, None] - log_decay[..., None, :]).tril_()
