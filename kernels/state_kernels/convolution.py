"""Causal depthwise convolution over packed sequences, and its windows at chosen depths.

A *window* is what the convolution remembers: the last ``width - 1`` unconvolved inputs, oldest
first, laid out ``[D, width - 1]``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import torch

from state_kernels.checks import (
    check_captures,
    check_convolution,
    check_cu_seqlens,
    check_pool,
    check_slots,
    check_state,
)
from state_kernels.numerics import compute_dtype, silu
from state_kernels.records import Captures
from state_kernels.tensors import check_floating

Activation = Literal["silu", "swish"]


class ConvolutionResult(NamedTuple):
    """Output ``[T, D]`` and each sequence's last window ``[N, D, width - 1]``, in x's dtype."""

    output: torch.Tensor
    final_window: torch.Tensor


def causal_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    cu_seqlens: torch.Tensor,
    initial_window: torch.Tensor | None = None,
    activation: Activation | None = None,
) -> ConvolutionResult:
    """Convolve each sequence with its own past.

    ``y_t = activation(bias + sum_i weight[:, i] x_{t - width + 1 + i})``, inputs before the first
    token taken from the window.

    Parameters
    ----------
    x : Tensor ``[T, D]``
        Packed tokens.
    weight : Tensor ``[D, width]``
    bias : Tensor ``[D]``, optional
    cu_seqlens : Tensor ``[N + 1]``, integer
        Cumulative sequence lengths.
    initial_window : Tensor ``[N, D, width - 1]``, optional
        Inputs before each sequence's first token; zeros if not given.
    activation : {"silu", "swish"}, optional
        Two names of the same function.

    Returns
    -------
    ConvolutionResult

    Raises
    ------
    ValueError
        If shapes, cumulative lengths or the activation do not fit.

    Notes
    -----
    Computes in float32 (float64 for float64 x), O(T D width). Bit-identical under any cut and in
    any batch on a CPU.
    """
    check_convolution(x, weight, bias, activation)
    bounds = check_cu_seqlens(cu_seqlens, x.shape[0])
    history = weight.shape[1] - 1
    windows = _start_windows(x, len(bounds) - 1, history, initial_window)

    # Each sequence is preceded by its window; outputs that straddle two sequences are left out.
    pieces = []
    for sequence, (start, end) in enumerate(pairwise(bounds)):
        pieces += [windows[sequence].T, x[start:end]]
    padded = torch.cat(pieces).to(compute_dtype(x)) if pieces else x.to(compute_dtype(x))
    taps = [padded[i : len(padded) - history + i] for i in range(history + 1)]
    convolved = _weighted_sum(taps, weight, bias, activation).to(x.dtype)
    if len(bounds) > 2:
        kept = [
            convolved[start + n * history : end + n * history]
            for n, (start, end) in enumerate(pairwise(bounds))
        ]
        convolved = torch.cat(kept)

    sequences = torch.arange(len(bounds) - 1, device=x.device)
    ends = cu_seqlens.to(x.device).long().diff()
    return ConvolutionResult(convolved, _windows_at(x, cu_seqlens, windows, sequences, ends))


def causal_convolution_step(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    pool: torch.Tensor,
    slots: torch.Tensor,
    activation: Activation | None = None,
) -> torch.Tensor:
    """Convolve one token for each row, in place on a pool of windows.

    Parameters
    ----------
    x : Tensor ``[B, D]``
    weight, bias, activation
        As in `causal_convolution`.
    pool : Tensor ``[rows, D, width - 1]``
        Windows named by `slots` are read, then shifted by one input.
    slots : Tensor ``[B]``, integer
        Negative values are padding: nothing is read or written and the output is zero. Two rows
        must not share a slot.

    Returns
    -------
    Tensor ``[B, D]``
        Bit-identical to `causal_convolution` where the pool has x's dtype.

    Raises
    ------
    ValueError
        If shapes do not fit or a slot is past the pool's end.
    """
    check_convolution(x, weight, bias, activation)
    check_pool(pool, (weight.shape[0], weight.shape[1] - 1))
    check_slots(slots, x.shape[0], pool.shape[0])
    output = torch.zeros_like(x)
    used = slots >= 0
    rows = slots[used].long()
    inputs = torch.cat([pool[rows].to(x.dtype), x[used][:, :, None]], dim=2)
    taps = list(inputs.to(compute_dtype(x)).unbind(dim=2))
    output[used] = _weighted_sum(taps, weight, bias, activation).to(x.dtype)
    pool.detach()[rows] = inputs[:, :, 1:].to(pool.dtype)
    return output


def capture_windows(
    x: torch.Tensor,
    *,
    cu_seqlens: torch.Tensor,
    initial_window: torch.Tensor | None = None,
    captures: Captures,
    pool: torch.Tensor,
) -> None:
    """Write the windows at the captures' depths to a pool.

    Parameters
    ----------
    x : Tensor ``[T, D]``
        Packed *unconvolved* tokens.
    cu_seqlens, initial_window
        As in `causal_convolution`; the window reaches into `initial_window` where depth is less
        than ``width - 1``.
    captures : Captures
    pool : Tensor ``[slots, D, width - 1]``
        Receives the windows in its own dtype; no other row is touched.

    Raises
    ------
    ValueError
        If shapes, cumulative lengths or captures do not fit.
    """
    check_floating(x=x, pool=pool)
    if x.dim() != 2:
        raise ValueError(f"x: got shape {tuple(x.shape)}; need [T, D]; put tokens first")
    bounds = check_cu_seqlens(cu_seqlens, len(x))
    check_captures(captures, pool, torch.tensor(bounds), (*x.shape[1:], *pool.shape[-1:]))
    windows = _start_windows(x, len(bounds) - 1, pool.shape[-1], initial_window)
    sequence, depth = captures.sequence.to(x.device), captures.depth.to(x.device)
    taken = _windows_at(x, cu_seqlens, windows, sequence, depth)
    pool.detach()[captures.slot.to(pool.device)] = taken.to(pool.dtype)


def _weighted_sum(
    taps: list[torch.Tensor],
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: Activation | None,
) -> torch.Tensor:
    """Return the activated sum of ``[..., D]`` taps, always added in the same order."""
    columns = weight.to(taps[0].dtype).unbind(dim=1)
    # A fused multiply-add may round differently at a block's edge, so multiply, then add.
    total = taps[0] * columns[0]
    if bias is not None:
        total += bias.to(total.dtype)
    for tap, column in zip(taps[1:], columns[1:], strict=True):
        total += tap * column
    return total if activation is None else silu(total)


def _windows_at(
    x: torch.Tensor,
    cu_seqlens: torch.Tensor,
    windows: torch.Tensor,
    sequence: torch.Tensor,
    depth: torch.Tensor,
) -> torch.Tensor:
    """Return the windows ``[C, D, width - 1]`` after `depth` tokens of each `sequence`."""
    history = windows.shape[-1]
    place = torch.arange(history, device=x.device)
    position = depth[:, None] - history + place
    start = cu_seqlens.to(x.device).long()[sequence]
    old = windows[sequence[:, None], :, (position + history).clamp(max=history - 1)]
    if x.shape[0] == 0:
        return old.transpose(1, 2).contiguous()
    # Positions before the start are replaced below; the clamp only keeps the index in range.
    new = x[(start[:, None] + position).clamp(0, x.shape[0] - 1)]
    return torch.where((position < 0)[..., None], old, new).transpose(1, 2).contiguous()


def _start_windows(
    x: torch.Tensor, sequences: int, history: int, initial_window: torch.Tensor | None
) -> torch.Tensor:
    shape = (sequences, x.shape[1], history)
    if initial_window is None:
        return x.new_zeros(shape)
    check_state("initial_window", initial_window, shape)
    return initial_window.to(x.dtype)
