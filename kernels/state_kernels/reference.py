"""Token-by-token recurrences: short, slow, and the truth in tests."""

from __future__ import annotations

from itertools import pairwise

import torch

from state_kernels.numerics import compute_dtype, l2_normalize
from state_kernels.records import Captures, GatedDeltaResult


def reference_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    captures: Captures | None = None,
    pool: torch.Tensor | None = None,
    scale: float | None = None,
    qk_l2norm: bool = False,
) -> GatedDeltaResult:
    """Gated delta rule, one token at a time.

    For each value head: ``S <- exp(g) S``; ``S <- S + beta (v - S k) k^T``; ``o = S (scale q)``
    (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464).

    Parameters and results are those of `state_kernels.gated_delta_rule`. Float64 if any of q, k, v
    is, else float32. Writes the rows of `pool` that `captures` names.
    """
    dtype = compute_dtype(q, k, v)
    repeat = v.shape[1] // q.shape[1]
    q, k, values = q.to(dtype), k.to(dtype), v.to(dtype)
    if qk_l2norm:
        q, k = l2_normalize(q), l2_normalize(k)
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    q, k = (x.repeat_interleave(repeat, dim=1) for x in (q, k))
    decay, beta = g.to(dtype).exp(), beta.to(dtype)

    bounds = cu_seqlens.tolist()
    shape = (len(bounds) - 1, values.shape[1], values.shape[2], k.shape[2])
    states = q.new_zeros(shape) if initial_state is None else initial_state.to(dtype).clone()
    output = torch.zeros_like(v)
    for sequence, (start, end) in enumerate(pairwise(bounds)):
        state = states[sequence]
        for token in range(start, end):
            state.mul_(decay[token, :, None, None])
            error = values[token] - torch.einsum("hvk,hk->hv", state, k[token])
            state.add_(torch.einsum("hv,hk->hvk", beta[token, :, None] * error, k[token]))
            output[token] = torch.einsum("hvk,hk->hv", state, q[token]).to(v.dtype)
            if captures is not None and pool is not None:
                wanted = (captures.sequence == sequence) & (captures.depth == token + 1 - start)
                for slot in captures.slot[wanted].tolist():
                    pool[slot] = state.to(pool.dtype)
    return GatedDeltaResult(output, states)


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

    Parameters and results are those of `state_kernels.causal_convolution`.
    """
    dtype = compute_dtype(x)
    bounds = cu_seqlens.tolist()
    shape = (len(bounds) - 1, weight.shape[0], weight.shape[1] - 1)
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
