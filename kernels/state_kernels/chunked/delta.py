"""Chunks of a delta rule: a token writes its value less what the state already says of its key.

Inside a chunk with start state S, log decays summed to G_i, the corrected values are
``D = (I + A)^-1 (beta (V - exp(G) K S^T))`` with ``A_ij = beta_i (exp(G_i - G_j) k_i) . k_j`` for
``j < i`` (the UT transform; Yang, Wang, Zhang, Shen, Kim, "Parallelizing Linear Transformers with
the Delta Rule over Sequence Length", arXiv 2406.06484). Then
``O = exp(G) Q S^T + tril((exp(G_i - G_j) q_i) . k_j) D`` and the state after i tokens is
``exp(G_i) S + sum_{j <= i} d_j (exp(G_i - G_j) k_j)^T``. Decays are of heads or of keys.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from state_kernels.checks import check_scale
from state_kernels.chunked.decay import advance, by_kind, decayed_products, from_start, summed
from state_kernels.chunked.layout import CHUNK
from state_kernels.chunked.products import add_matmul, matmul, unit_lower_inverse
from state_kernels.gpu.terms import DeltaCorrection, KernelTerms
from state_kernels.numerics import by_value_head, queries_and_keys, query_scale
from state_kernels.records import TensorRecord
from state_kernels.recurrence import Inputs, Recurrence


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


@dataclass(frozen=True)
class DeltaInputs(Inputs):
    """q, k ``[T, H, K]``, v ``[T, HV, V]``, log decay g, beta ``[T, HV]``."""

    q: torch.Tensor
    g: torch.Tensor
    beta: torch.Tensor


DeltaInputsT = TypeVar("DeltaInputsT", bound=DeltaInputs)


@dataclass(frozen=True)
class DeltaRecurrence(Recurrence[DeltaInputsT, DeltaRows], Generic[DeltaInputsT]):
    """``S <- S exp(g)``; ``S <- S + beta (v - S k) k^T``; ``o = S (scale q)``.

    Parameters
    ----------
    scale : float, optional
        Factor of q; ``K ** -0.5`` if not given.
    qk_l2norm : bool
        Normalise q and k along K first (epsilon 1e-6 under the root).
    """

    scale: float | None = None
    qk_l2norm: bool = False

    def __post_init__(self) -> None:
        if self.scale is not None:
            check_scale(self.scale)

    @abstractmethod
    def decays(self, g: torch.Tensor) -> torch.Tensor:
        """Return log decays with a last axis of 1, or of K where keys decay one by one."""

    def token(self, state: torch.Tensor, inputs: DeltaInputsT) -> torch.Tensor:
        q, k = queries_and_keys(inputs.q, inputs.k, self.scale, self.qk_l2norm)
        query, key = (by_value_head(x, inputs.v)[..., None, :] for x in (q, k))
        state.mul_(self.decays(inputs.g).exp()[..., None, :])
        error = (inputs.v - (state * key).sum(dim=-1)) * inputs.beta[..., None]
        state.add_(error[..., None] * key)
        return (state * query).sum(dim=-1)

    def prepare(self, inputs: DeltaInputsT) -> DeltaRows:
        v, beta = inputs.v, inputs.beta[..., None]
        q, k = queries_and_keys(inputs.q, inputs.k, self.scale, self.qk_l2norm)
        sums = summed(self.decays(inputs.g))
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
            beta=beta,
            log_decay=sums,
            inverse=unit_lower_inverse(products[:, :, 0, 0] * beta),
            attention=products[:, :, 1, 0],
        )

    def attend(self, rows: DeltaRows, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the corrected values and the outputs, both ``[R, HV, 64, V]``."""
        from_state = matmul(rows.reads, state.transpose(2, 3))
        error = (rows.values - from_state[:, :, :CHUNK]).mul_(rows.beta)
        corrected = matmul(rows.inverse, error)
        return corrected, add_matmul(from_state[:, :, CHUNK:], rows.attention, corrected)

    def advance(
        self, state: torch.Tensor, rows: DeltaRows, writes: torch.Tensor, cut: torch.Tensor | None
    ) -> None:
        advance(state, rows.keys, writes, rows.log_decay, cut)

    def kernel_terms(self, inputs: DeltaInputsT) -> KernelTerms:
        return KernelTerms(
            q=inputs.q,
            k=inputs.k,
            v=inputs.v,
            log_decay=inputs.g,
            correction=DeltaCorrection(inputs.beta),
            scale=query_scale(self.scale, inputs.k),
            qk_l2norm=self.qk_l2norm,
        )
