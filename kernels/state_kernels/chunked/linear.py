"""Chunks of decayed linear attention: a token writes its value whatever the state holds.

Inside a chunk with start state S and log decays summed to G_i,
``O = exp(G) Q S^T + tril((exp(G_i - G_j) q_i) . k_j) V`` (the state space duality; Dao, Gu,
"Transformers are SSMs", arXiv 2405.21060; with decays of keys: Yang, Wang, Shen, Panda, Kim,
"Gated Linear Attention Transformers", arXiv 2312.06635).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from state_kernels.checks import check_scale
from state_kernels.chunked.decay import advance, decayed_products, from_start, summed
from state_kernels.chunked.products import matmul
from state_kernels.gpu.terms import KernelTerms
from state_kernels.numerics import by_value_head, queries_and_keys, query_scale
from state_kernels.records import TensorRecord
from state_kernels.recurrence import Inputs, Recurrence


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


@dataclass(frozen=True)
class LinearInputs(Inputs):
    """q, k ``[T, H, K]``, v ``[T, HV, V]``, log decay g."""

    q: torch.Tensor
    g: torch.Tensor


LinearInputsT = TypeVar("LinearInputsT", bound=LinearInputs)


@dataclass(frozen=True)
class LinearRecurrence(Recurrence[LinearInputsT, LinearRows], Generic[LinearInputsT]):
    """``S <- S exp(g) + v k^T``; ``o = S (scale q)``.

    Parameters
    ----------
    scale : float, optional
        Factor of q; ``K ** -0.5`` if not given.
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            check_scale(self.scale)

    @abstractmethod
    def decays(self, g: torch.Tensor) -> torch.Tensor:
        """Return log decays with a last axis of 1, or of K where keys decay one by one."""

    def token(self, state: torch.Tensor, inputs: LinearInputsT) -> torch.Tensor:
        q, k = queries_and_keys(inputs.q, inputs.k, self.scale, l2norm=False)
        query, key = (by_value_head(x, inputs.v)[..., None, :] for x in (q, k))
        state.mul_(self.decays(inputs.g).exp()[..., None, :]).add_(inputs.v[..., None] * key)
        return (state * query).sum(dim=-1)

    def prepare(self, inputs: LinearInputsT) -> LinearRows:
        v = inputs.v
        q, k = queries_and_keys(inputs.q, inputs.k, self.scale, l2norm=False)
        sums = summed(self.decays(inputs.g))
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

    def attend(self, rows: LinearRows, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the values, which are what is written, and the outputs ``[R, HV, 64, V]``."""
        output = matmul(rows.attention, rows.values)
        return rows.values, output.add_(matmul(rows.reads, state.transpose(2, 3)))

    def advance(
        self, state: torch.Tensor, rows: LinearRows, writes: torch.Tensor, cut: torch.Tensor | None
    ) -> None:
        advance(state, rows.keys, writes, rows.log_decay, cut)

    def kernel_terms(self, inputs: LinearInputsT) -> KernelTerms:
        return KernelTerms(
            q=inputs.q,
            k=inputs.k,
            v=inputs.v,
            log_decay=inputs.g,
            correction=None,
            scale=query_scale(self.scale, inputs.k),
        )
