"""Chunks of decayed linear attention: a token writes its value whatever the state holds.

Inside a chunk with start state S and log decays summed to G_i,
``O = exp(G) Q S^T + tril((exp(G_i - G_j) q_i) . k_j) V`` (the state space duality; Dao, Gu,
"Transformers are SSMs", arXiv 2405.21060; with decays of keys: Yang, Wang, Shen, Panda, Kim,
"Gated Linear Attention Transformers", arXiv 2312.06635).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from state_kernels.chunked.decay import advance, decayed_products, from_start, summed
from state_kernels.chunked.products import matmul
from state_kernels.records import TensorRecord


@dataclass(frozen=True)
class LinearRows(TensorRecord):
    """What chunks contribute apart from their start states; one row a chunk.

    Attributes
    ----------
    keys : Tensor ``[R, HV, 64, K]``
    reads : Tensor ``[R, HV, 64, K]``
        Queries decayed from the chunk's start.
    values : Tensor ``[R, HV, 64, V]``
    log_decay : Tensor ``[R, HV, 64, 1 or K]``
        Summed from the chunk's start, float64.
    attention : Tensor ``[R, HV, 64, 64]``
    """

    keys: torch.Tensor
    reads: torch.Tensor
    values: torch.Tensor
    log_decay: torch.Tensor
    attention: torch.Tensor


def prepare_linear(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor
) -> LinearRows:
    """Return the rows of chunks.

    Parameters
    ----------
    q, k : Tensor ``[R, H, 64, K]``
        Queries scaled.
    v : Tensor ``[R, HV, 64, V]``
    log_decay : Tensor ``[R, HV, 64, 1 or K]``
        Of each token.
    """
    sums = summed(log_decay)
    attention = decayed_products(q, k, sums)[:, :, 0, 0]
    repeat = v.shape[1] // k.shape[1]
    if repeat > 1:
        q, k = (x.repeat_interleave(repeat, dim=1) for x in (q, k))
    return LinearRows(
        keys=k,
        reads=q * from_start(sums, v.dtype),
        values=v,
        log_decay=sums,
        attention=attention,
    )


def attend_linear(rows: LinearRows, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values, which are what is written, and the outputs ``[R, HV, 64, V]``."""
    output = matmul(rows.attention, rows.values)
    return rows.values, output.add_(matmul(rows.reads, state.transpose(2, 3)))


def advance_linear(
    state: torch.Tensor, rows: LinearRows, writes: torch.Tensor, cut: torch.Tensor | None
) -> None:
    """Advance start states in place to their chunk's end, or to a cut."""
    advance(state, rows.keys, writes, rows.log_decay, cut)
