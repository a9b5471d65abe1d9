"""Token-by-token passes: short, slow, and the truth in tests."""

from __future__ import annotations

from itertools import pairwise

import torch

from state_kernels.checks import check_convolution, check_cu_seqlens, check_state
from state_kernels.numerics import compute_dtype
from state_kernels.records import Captures
from state_kernels.recurrence import InputsT, Recurrence, RowsT


def run_tokens(
    recurrence: Recurrence[InputsT, RowsT],
    inputs: InputsT,
    bounds: list[int],
    state: torch.Tensor,
    captures: Captures | None,
    pool: torch.Tensor | None,
) -> torch.Tensor:
    """Run every sequence token by token and return the packed output ``[T, HV, V]``.

    Parameters
    ----------
    recurrence, inputs
        The rule and its packed inputs.
    bounds : list of int
        Cumulative sequence lengths.
    state : Tensor ``[N, HV, V, K]``
        Start states, overwritten with the final ones.
    captures, pool
        States to write in this pass, and where.
    """
    wanted: dict[tuple[int, int], list[int]] = {}
    if captures is not None:
        columns = (x.tolist() for x in (captures.sequence, captures.depth, captures.slot))
        for sequence, depth, slot in zip(*columns, strict=True):
            wanted.setdefault((sequence, depth), []).append(slot)
    output = torch.zeros_like(inputs.v)
    exact = inputs.map(lambda x: x.to(state.dtype))
    for sequence, (start, end) in enumerate(pairwise(bounds)):
        for token in range(start, end):
            result = recurrence.token(state[sequence], exact.map(lambda x, t=token: x[t]))  # type: ignore[misc]
            output[token] = result.to(output.dtype)
            for slot in wanted.get((sequence, token + 1 - start), ()):
                if pool is not None:
                    pool[slot] = state[sequence].to(pool.dtype)
    return output


def reference_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    cu_seqlens: torch.Tensor,
    initial_window: torch.Tensor | None = None,
    activation: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal depthwise convolution, one token at a time.

    Parameters, results and errors are those of `state_kernels.causal_convolution`.
    """
    check_convolution(x, weight, bias, activation)
    bounds = check_cu_seqlens(cu_seqlens, len(x))
    dtype = compute_dtype(x)
    shape = (len(bounds) - 1, weight.shape[0], weight.shape[1] - 1)
    if initial_window is not None:
        check_state("initial_window", initial_window, shape)
    windows = x.new_zeros(shape) if initial_window is None else initial_window.to(x.dtype).clone()
    output = torch.zeros_like(x)
    for sequence, (start, end) in enumerate(pairwise(bounds)):
        window = windows[sequence]
        for token in range(start, end):
            inputs = torch.cat([window, x[token, :, None]], dim=1)
            total = (inputs.to(dtype) * weight.to(dtype)).sum(dim=1)
            if bias is not None:
                total = total + bias.to(dtype)
            if activation is not None:
                total = torch.nn.functional.silu(total)
            output[token] = total.to(x.dtype)
            window = inputs[:, 1:]
        windows[sequence] = window
    return output, windows
