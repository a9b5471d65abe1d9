"""Which passes the kernels can run, without importing Triton."""

from __future__ import annotations

import torch

from state_kernels.gpu import require_triton
from state_kernels.gpu.terms import KernelTerms
from state_kernels.numerics import compute_dtype

LARGEST_KEY = 128
"""Tiles of longer keys do not fit beside each other into the memory of a processor."""


def require_kernels(terms: KernelTerms | None) -> KernelTerms:
    """Return a recurrence's terms, or raise ValueError where kernels cannot run on them.

    Parameters
    ----------
    terms : KernelTerms or None
        None from a recurrence that has no kernels.
    """
    if terms is None:
        raise ValueError(
            "implementation: got 'triton' for a recurrence without `kernel_terms`; "
            "need terms that kernels know; use 'chunked'"
        )
    require_triton(terms.v.device)
    correction = () if terms.correction is None else terms.correction.tensors()
    dtype = compute_dtype(terms.q, terms.k, terms.v, terms.log_decay, *correction)
    if dtype == torch.float64:
        raise ValueError(
            f"implementation: got 'triton' for {dtype}; need float32 or half inputs; "
            "convert them, or use 'chunked'"
        )
    if terms.k.shape[-1] > LARGEST_KEY:
        raise ValueError(
            f"implementation: got 'triton' for K = {terms.k.shape[-1]}; "
            f"need at most {LARGEST_KEY}; use 'chunked'"
        )
    return terms
