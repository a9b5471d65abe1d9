"""The form in which Triton kernels take a recurrence.

``S <- S diag(exp(g)) + u b^T + v k^T``; ``o = S (scale q)``, where the term of u corrects the state
by what it says itself. A delta rule writes only u, along its keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from state_kernels.records import TensorRecord


@dataclass(frozen=True)
class DeltaCorrection(TensorRecord):
    """Write ``u k^T`` with ``u = beta (v - S diag(exp(g)) k)`` instead of ``v k^T``.

    Attributes
    ----------
    beta : Tensor ``[T, HV]``
    """

    beta: torch.Tensor


@dataclass(frozen=True)
class LowRankCorrection(TensorRecord):
    """Write ``u b^T`` beside ``v k^T``, with ``u = S a`` of the state before the token.

    Attributes
    ----------
    a, b : Tensor ``[T, H, K]``
    """

    a: torch.Tensor
    b: torch.Tensor


@dataclass(frozen=True)
class KernelTerms:
    """Packed inputs of a recurrence in the form that the kernels know.

    Attributes
    ----------
    q, k : Tensor ``[T, H, K]``
    v : Tensor ``[T, HV, V]``, HV a multiple of H
    log_decay : Tensor ``[T, HV]`` or ``[T, HV, K]``
        Of heads, or of keys; at most 0.
    correction : DeltaCorrection or LowRankCorrection, optional
        A low-rank correction has decays of keys.
    scale : float
        Factor of q.
    qk_l2norm : bool
        Normalise q and k along K first.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    log_decay: torch.Tensor
    correction: DeltaCorrection | LowRankCorrection | None
    scale: float
    qk_l2norm: bool = False
