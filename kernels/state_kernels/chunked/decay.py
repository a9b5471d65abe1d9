"""Decay inside chunks: log decays ``[R, HV, 64, 1]`` of heads, or ``[R, HV, 64, K]`` of keys.

They are summed from the chunk's start, in float64: a difference of float32 sums would have lost
the small decays that follow strong ones.
"""

from __future__ import annotations

import torch

from state_kernels.chunked.layout import CHUNK
from state_kernels.chunked.products import matmul


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
        Vectors of the later token; n of them for each.
    right : Tensor ``[R, H, 64, K]``
        Vectors of the earlier token.
    log_decay : Tensor ``[R, HV, 64, 1 or K]``
        Summed log decays G.

    Returns
    -------
    Tensor ``[R, HV, n, 64, 64]``
        Zero above the diagonal.
    """
    heads, value_heads = left.shape[1], log_decay.shape[1]
    repeat = value_heads // heads
    if log_decay.shape[-1] == 1:
        products = by_kind(matmul(left, right.transpose(2, 3)))
        decay = _between(log_decay[..., 0]).to(left.dtype).exp()[:, :, None]
        return products.repeat_interleave(repeat, dim=1).mul_(decay).tril_()
    left, right = (x.repeat_interleave(repeat, dim=1) for x in (left, right))
    later = by_kind(left)
    products = left.new_zeros(*later.shape[:-1], CHUNK)
    for token in range(CHUNK):
        decay = (log_decay[:, :, token:] - log_decay[:, :, token : token + 1]).to(left.dtype)
        weighted = right[:, :, token : token + 1] * decay.exp_()
        products[..., token:, token] = (later[..., token:, :] * weighted[:, :, None]).sum(dim=-1)
    return products


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
    keys : Tensor ``[R, HV, 64, K]``
    writes : Tensor ``[R, HV, 64, V]``
        Token j adds ``writes_j keys_j^T``, which later tokens decay.
    log_decay : Tensor ``[R, HV, 64, 1 or K]``
        Summed.
    cut : Tensor ``[R]``, integer, optional
        How many tokens of each chunk enter; all if not given.
    """
    until, remaining = decay_until(log_decay, cut, state.dtype)
    state.mul_(until)
    state.add_(matmul(writes.transpose(2, 3), keys * remaining))


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
