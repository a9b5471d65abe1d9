"""Where the kernels can run, without importing Triton."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch

from state_kernels.gpu.terms import KernelTerms
from state_kernels.numerics import compute_dtype

LARGEST_KEY = 256
INTERPRETED = "TRITON_INTERPRET"


def why_unavailable(terms: KernelTerms | None) -> str | None:
    """Return what the kernels lack for a recurrence's terms, None if nothing.

    Parameters
    ----------
    terms : KernelTerms or None
        None from a recurrence that has no kernels.
    """
    if terms is None:
        return "a recurrence with kernels; give it `kernel_terms`, or use 'chunked'"
    device = terms.v.device
    if device.type != "cuda" and os.environ.get(INTERPRETED) != "1":
        return f"tensors on a GPU, not on {device}; move them, or use 'chunked'"
    if compute_dtype(terms.q, terms.k, terms.v, terms.log_decay) == torch.float64:
        return "float32 or half inputs; convert them, or use 'chunked'"
    if terms.k.shape[-1] > LARGEST_KEY:
        return f"K of at most {LARGEST_KEY}, not {terms.k.shape[-1]}; use 'chunked'"
    if find_spec("triton") is None:
        return "Triton; pip install triton"
    return None
