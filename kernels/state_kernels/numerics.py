"""Elementwise functions whose value does not depend on an element's place in the tensor.

On a CPU, torch evaluates ``sigmoid``, ``silu`` and ``softplus`` with vector instructions for most
elements and with scalar ones for the last few of each block; the two can differ in the last bit.
``exp``, ``log`` and division do not have that difference, so the functions here use only them.
"""

from __future__ import annotations

import torch

L2_NORM_EPSILON = 1e-6


def compute_dtype(*tensors: torch.Tensor) -> torch.dtype:
    """Return float64 if any tensor has it, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    """Return ``1 / (1 + exp(-x))``."""
    return torch.reciprocal(torch.exp(-x) + 1)


def silu(x: torch.Tensor) -> torch.Tensor:
    """Return ``x * sigmoid(x)``."""
    return x / (torch.exp(-x) + 1)


def l2_normalize(x: torch.Tensor, length: float = 1.0) -> torch.Tensor:
    """Return ``length x / sqrt(sum(x^2) + 1e-6)`` along the last axis."""
    return x * (length / torch.sqrt(x.square().sum(dim=-1, keepdim=True) + L2_NORM_EPSILON))


def queries_and_keys(
    q: torch.Tensor, k: torch.Tensor, scale: float | None, l2norm: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return q times `scale` (``K ** -0.5`` if None), and k, both normalised before if asked."""
    factor = query_scale(scale, k)
    return (l2_normalize(q, factor), l2_normalize(k)) if l2norm else (q * factor, k)


def query_scale(scale: float | None, k: torch.Tensor) -> float:
    """Return the factor of queries: `scale`, or ``K ** -0.5`` if None."""
    return float(k.shape[-1] ** -0.5) if scale is None else scale


def by_value_head(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return ``[..., H, K]`` repeated to the heads of v ``[..., HV, V]``."""
    return x.repeat_interleave(v.shape[-2] // x.shape[-2], dim=-2)


def random_log_decay(
    shape: tuple[int, ...], generator: torch.Generator, decay: tuple[float, float]
) -> torch.Tensor:
    """Return log decays whose negatives are log-uniform between two bounds."""
    low, high = torch.tensor(decay).log()
    return -torch.exp(low + torch.rand(shape, generator=generator) * (high - low))
