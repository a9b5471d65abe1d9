"""Chunks of a delta rule: a token writes its value less what the state already says of its key.

Inside a chunk with start state S, log decays summed to G_i, the corrected values are
``D = (I + A)^-1 (beta (V - exp(G) K S^T))`` with ``A_ij = beta_i (exp(G_i - G_j) k_i) . k_j`` for
``j < i`` (the UT transform; Yang, Wang, Zhang, Shen, Kim, "Parallelizing Linear Transformers with
the Delta Rule over Sequence Length", arXiv 2406.06484). Then
``O = exp(G) Q S^T + tril((exp(G_i - G_j) q_i) . k_j) D`` and the state after i tokens is
``exp(G_i) S + sum_{j <= i} d_j (exp(G_i - G_j) k_j)^T``. Decays are of heads or of keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from state_kernels.chunked.decay import advance, by_kind, decayed_products, from_start, summed
from state_kernels.chunked.layout import CHUNK
from state_kernels.chunked.products import add_matmul, matmul, unit_lower_inverse
from state_kernels.records import TensorRecord


@dataclass(frozen=True)
class DeltaRows(TensorRecord):
    """What chunks contribute apart from their start states; one row a chunk.

    Attributes
    ----------
    keys : Tensor ``[R, HV, 64, K]``
    reads : Tensor ``[R, HV, 128, K]``
        Keys, then queries, both decayed from the chunk's start.
    values : Tensor ``[R, HV, 64, V]``
    beta : Tensor ``[R, HV, 64, 1]``
    log_decay : Tensor ``[R, HV, 64, 1 or K]``
        Summed from the chunk's start, float64.
    inverse, attention : Tensor ``[R, HV, 64, 64]``
    """

    keys: torch.Tensor
    reads: torch.Tensor
    values: torch.Tensor
    beta: torch.Tensor
    log_decay: torch.Tensor
    inverse: torch.Tensor
    attention: torch.Tensor


def prepare_delta(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    beta: torch.Tensor,
) -> DeltaRows:
    """Return the rows of chunks.

    Parameters
    ----------
    q, k : Tensor ``[R, H, 64, K]``
        Queries scaled, both normalised where they are to be.
    v : Tensor ``[R, HV, 64, V]``
    log_decay : Tensor ``[R, HV, 64, 1 or K]``
        Of each token.
    beta : Tensor ``[R, HV, 64]``
    """
    sums = summed(log_decay)
    reads = torch.cat([k, q], dim=2)
    products = decayed_products(reads, k, sums)
    repeat = v.shape[1] // k.shape[1]
    if repeat > 1:
        k, reads = (x.repeat_interleave(repeat, dim=1) for x in (k, reads))
    by_kind(reads).mul_(from_start(sums, v.dtype)[:, :, None])
    return DeltaRows(
        keys=k,
        reads=reads,
        values=v,
        beta=beta[..., None],
        log_decay=sums,
        inverse=unit_lower_inverse(products[:, :, 0, 0] * beta[..., None]),
        attention=products[:, :, 1, 0],
    )


def attend_delta(rows: DeltaRows, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the corrected values and the outputs, both ``[R, HV, 64, V]``."""
    from_state = matmul(rows.reads, state.transpose(2, 3))
    error = (rows.values - from_state[:, :, :CHUNK]).mul_(rows.beta)
    corrected = matmul(rows.inverse, error)
    return corrected, add_matmul(from_state[:, :, CHUNK:], rows.attention, corrected)


def advance_delta(
    state: torch.Tensor, rows: DeltaRows, corrected: torch.Tensor, cut: torch.Tensor | None
) -> None:
    """Advance start states in place to their chunk's end, or to a cut."""
    advance(state, rows.keys, corrected, rows.log_decay, cut)
