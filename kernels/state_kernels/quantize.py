"""States in 8 bits: a quarter of the memory, at an error that is bounded."""

from __future__ import annotations

from typing import NamedTuple

import torch

from state_kernels.tensors import check_tensors

LEVELS = 127


class QuantizedStates(NamedTuple):
    """States in int8, and what one step is worth in each row.

    Attributes
    ----------
    values : Tensor ``[..., K]``, int8
        In -127..127.
    scale : Tensor ``[...]``, float32
    """

    values: torch.Tensor
    scale: torch.Tensor


@torch.no_grad()
def quantize_states(states: torch.Tensor) -> QuantizedStates:
    """Round states to int8, with one scale for each row of a head.

    Parameters
    ----------
    states : Tensor ``[..., K]``
        Float32 or a half type, such as a pool ``[layers, slots, HV, V, K]``.

    Returns
    -------
    QuantizedStates
        ``scale = max |row| / 127`` and ``values = round(row / scale)``. Both are pools for
        `StatePools` if `states` is one.

    Raises
    ------
    TypeError
        If `states` is not a tensor.
    ValueError
        If `states` is not of a floating type up to float32, or its rows are empty.

    Notes
    -----
    An element comes back from `dequantize_states` in float32 within
    ``max |row| (1 / 254 + 2e-7) + 1e-38`` of what it was: half a step, rounding included. A row
    that holds an infinity or a NaN comes back as NaN.
    """
    check_tensors(states=states)
    if states.dim() == 0 or states.shape[-1] == 0:
        raise ValueError(
            f"states: got shape {tuple(states.shape)}; need [..., K] of at least one; pass rows"
        )
    if not states.is_floating_point() or states.dtype == torch.float64:
        raise ValueError(
            f"states: got {states.dtype}; need float32 or a half type; convert them first"
        )
    exact = states.float()
    largest = exact.abs().amax(dim=-1)
    # Not below the normal numbers, where a scale would have lost its digits, or be zero.
    scale = (largest / LEVELS).clamp_min(torch.finfo(torch.float32).tiny)
    scale = torch.where(largest.isfinite(), scale, torch.nan)
    steps = (exact / scale[..., None]).round_()
    return QuantizedStates(steps.nan_to_num_(0).to(torch.int8), scale)


def dequantize_states(
    quantized: QuantizedStates, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return the states ``[..., K]`` that were quantized, each value rounded once to `dtype`."""
    return (quantized.values.float() * quantized.scale[..., None]).to(dtype)
