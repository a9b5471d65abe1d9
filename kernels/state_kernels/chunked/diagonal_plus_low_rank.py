"""Chunks of a diagonal plus low rank rule: a token decays the state, adds to it what one vector
reads from it, and its value.

With ``S_i = S_{i-1} diag(exp(w_i)) + u_i b_i^T + v_i k_i^T``, ``u_i = S_{i-1} a_i``, and log
decays summed to G_i inside a chunk with start state S, the vectors read are
``U = (I - A)^-1 (exp(G_{i-1}) a_i S^T + B V)`` with
``A_ij = (exp(G_{i-1} - G_j) a_i) . b_j`` and ``B_ij = (exp(G_{i-1} - G_j) a_i) . k_j`` for
``j < i``. What a token writes is then known, and outputs and states are those of decayed linear
attention with two keys a token (Peng et al., "RWKV-7 Goose with Expressive Dynamic State
Evolution", arXiv 2503.14456, whose transition is a diagonal matrix plus one of rank one; the
inverse as for delta rules in `state_kernels.chunked.delta`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from state_kernels.chunked.decay import advance, decayed_products, from_start, summed
from state_kernels.chunked.layout import CHUNK
from state_kernels.chunked.products import matmul, unit_lower_inverse
from state_kernels.records import TensorRecord


@dataclass(frozen=True)
class LowRankRows(TensorRecord):
    """What chunks contribute apart from their start states; one row a chunk.

    Attributes
    ----------
    keys : Tensor ``[R, H, 128, K]``
        b, then k.
    reads : Tensor ``[R, H, 128, K]``
        a decayed from the chunk's start to before its token, then r decayed to after it.
    values : Tensor ``[R, H, 64, V]``
    read_values : Tensor ``[R, H, 64, V]``
        ``B V``: what a reads of the values that the chunk's earlier tokens write.
    log_decay : Tensor ``[R, H, 64, K]``
        Summed from the chunk's start, float64.
    inverse : Tensor ``[R, H, 64, 64]``
    attention : Tensor ``[R, H, 64, 128]``
        Of r with b, then with k.
    """

    keys: torch.Tensor
    reads: torch.Tensor
    values: torch.Tensor
    read_values: torch.Tensor
    log_decay: torch.Tensor
    inverse: torch.Tensor
    attention: torch.Tensor


def prepare_low_rank(
    r: torch.Tensor,
    log_decay: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
) -> LowRankRows:
    """Return the rows of chunks.

    Parameters
    ----------
    r, k, a, b : Tensor ``[R, H, 64, K]``
    log_decay : Tensor ``[R, H, 64, K]``
        Of each token.
    v : Tensor ``[R, H, 64, V]``
    """
    sums = summed(log_decay)
    keys = torch.cat([b, k], dim=2)
    # A token's a reads before its decay: its decay is that of the token before, so it takes
    # that one's place in the products and moves back after.
    a_earlier = pad(a[:, :, 1:], (0, 0, 0, 1))
    products = decayed_products(torch.cat([a_earlier, r], dim=2), keys, sums)
    of_a = pad(products[:, :, 0, :, :-1], (0, 0, 1, 0))
    before = pad(sums[:, :, :-1], (0, 0, 1, 0))
    reads = [a * from_start(before, v.dtype), r * from_start(sums, v.dtype)]
    return LowRankRows(
        keys=keys,
        reads=torch.cat(reads, dim=2),
        values=v,
        read_values=matmul(of_a[:, :, 1], v),
        log_decay=sums,
        inverse=unit_lower_inverse(-of_a[:, :, 0]),
        attention=torch.cat(products[:, :, 1].unbind(dim=2), dim=3),
    )


def attend_low_rank(rows: LowRankRows, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what is written to both keys ``[R, H, 128, V]``, and the outputs ``[R, H, 64, V]``."""
    from_state = matmul(rows.reads, state.transpose(2, 3))
    read = matmul(rows.inverse, from_state[:, :, :CHUNK] + rows.read_values)
    writes = torch.cat([read, rows.values], dim=2)
    output = matmul(rows.attention, writes).add_(from_state[:, :, CHUNK:])
    return writes, output


def advance_low_rank(
    state: torch.Tensor, rows: LowRankRows, writes: torch.Tensor, cut: torch.Tensor | None
) -> None:
    """Advance start states in place to their chunk's end, or to a cut."""
    advance(state, rows.keys, writes, rows.log_decay, cut)
