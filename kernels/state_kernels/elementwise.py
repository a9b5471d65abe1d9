"""Projection splitting, gates, norms and state copies, with the signatures SGLang calls."""

from __future__ import annotations

import torch

from state_kernels.numerics import sigmoid, silu

GATE_ACTIVATIONS = {"swish": silu, "silu": silu, "sigmoid": sigmoid}


def fused_qkvzba_split_reshape_cat_contiguous(
    mixed_qkvz: torch.Tensor,
    mixed_ba: torch.Tensor,
    num_heads_qk: int,
    num_heads_v: int,
    head_qk: int,
    head_v: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split ``[q | k | v | z]`` and ``[b | a]`` projections.

    Parameters
    ----------
    mixed_qkvz : Tensor ``[B, 2 H K + 2 HV V]``
    mixed_ba : Tensor ``[B, 2 HV]``
    num_heads_qk, num_heads_v, head_qk, head_v : int
        H, HV, K and V.

    Returns
    -------
    tuple of Tensor
        New contiguous ``qkv [B, 2 H K + HV V]``, ``z [B, HV, V]``, ``b [B, HV]``, ``a [B, HV]``.

    Raises
    ------
    ValueError
        If a projection's width does not fit the heads.
    """
    qkv_size = 2 * num_heads_qk * head_qk + num_heads_v * head_v
    widths = (qkv_size + num_heads_v * head_v, 2 * num_heads_v)
    if (mixed_qkvz.shape[-1], mixed_ba.shape[-1]) != widths:
        raise ValueError(
            f"projections: got widths {(mixed_qkvz.shape[-1], mixed_ba.shape[-1])}; need {widths}; "
            "pass the numbers of heads of this rank"
        )
    copy = torch.contiguous_format
    qkv = mixed_qkvz[:, :qkv_size].clone(memory_format=copy)
    z = mixed_qkvz[:, qkv_size:].clone(memory_format=copy).view(-1, num_heads_v, head_v)
    b = mixed_ba[:, :num_heads_v].clone(memory_format=copy)
    a = mixed_ba[:, num_heads_v:].clone(memory_format=copy)
    return qkv, z, b, a


def fused_gdn_gating(
    A_log: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    dt_bias: torch.Tensor,
    beta: float = 1.0,
    threshold: float = 20.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log decay ``-exp(A_log) softplus(a + dt_bias)`` and beta ``sigmoid(b)``.

    Parameters
    ----------
    A_log, dt_bias : Tensor ``[HV]``
    a, b : Tensor ``[B, HV]``
    beta, threshold : float
        Softplus is ``log(1 + exp(beta x)) / beta``, and x itself where ``beta x > threshold``.

    Returns
    -------
    tuple of Tensor
        Two float32 tensors ``[1, B, HV]``; the second is rounded to b's dtype first.
    """
    x = a.float() + dt_bias.float()
    scaled = beta * x
    soft = torch.log(torch.exp(scaled.clamp(max=threshold)) + 1) / beta
    log_decay = -torch.exp(A_log.float()) * torch.where(scaled <= threshold, soft, x)
    return log_decay[None], sigmoid(b.float()).to(b.dtype).float()[None]


def rms_norm_gated(
    *,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    z: torch.Tensor | None = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
    activation: str = "swish",
) -> torch.Tensor:
    """Normalise groups of the last axis and gate with ``activation(z)``.

    Parameters
    ----------
    x : Tensor ``[..., D]``
    weight, bias : Tensor ``[D]``, bias optional
    z : Tensor, optional
        Gate of x's shape, or ``[tokens, heads, D]`` for x ``[tokens * heads, D]``.
    eps : float
    group_size : int, optional
        Size of a group; D if not given.
    norm_before_gate : bool
        Gate the normalised value, else normalise the gated one.
    is_rms_norm : bool
        Divide by the root mean square, else subtract the mean and divide by the deviation.
    activation : {"swish", "silu", "sigmoid"}

    Returns
    -------
    Tensor
        Of x's shape and dtype; computed in float32.

    Raises
    ------
    ValueError
        If the group size or the activation is not supported.
    """
    width = x.shape[-1]
    group = width if group_size is None else group_size
    if width % group:
        raise ValueError(
            f"group_size: got {group}; need a divisor of {width}; leave it out for one group"
        )
    if activation not in GATE_ACTIVATIONS:
        raise ValueError(
            f"activation: got {activation!r}; need one of {sorted(GATE_ACTIVATIONS)}; "
            "apply others afterwards"
        )
    if z is not None and (z.shape[-1] != width or z.numel() != x.numel()):
        raise ValueError(
            f"z: got shape {tuple(z.shape)}; need as many rows of {width} as x {tuple(x.shape)}; "
            "give one gate for each value"
        )
    value = x.reshape(-1, width).float()
    gate = None if z is None else GATE_ACTIVATIONS[activation](z.reshape(-1, width).float())
    if gate is not None and not norm_before_gate:
        value = value * gate
    grouped = value.reshape(-1, width // group, group)
    if not is_rms_norm:
        grouped = grouped - grouped.sum(dim=-1, keepdim=True) / group
    variance = grouped.square().sum(dim=-1, keepdim=True) / group
    result = (grouped * torch.rsqrt(variance + eps)).reshape(-1, width) * weight.float()
    if bias is not None:
        result = result + bias.float()
    if gate is not None and norm_before_gate:
        result = result * gate
    return result.to(x.dtype).reshape(x.shape)


def fused_sigmoid_mul(
    attn_output: torch.Tensor, gate: torch.Tensor, inplace: bool = False, quant: bool = False
) -> torch.Tensor:
    """Return ``attn_output * sigmoid(gate)``.

    Parameters
    ----------
    attn_output : Tensor ``[..., D]``
    gate : Tensor
        Of the same shape, or ``[tokens, heads, D // heads]`` for attn_output ``[tokens, D]``.
    inplace : bool
        Overwrite and return attn_output.
    quant : bool
        Not supported.

    Returns
    -------
    Tensor
        Of attn_output's shape and dtype; computed in float32.

    Raises
    ------
    ValueError
        If `quant` is set or the sizes differ.
    """
    if quant:
        raise ValueError("quant: got True; need False; serve without FP8 activations")
    if gate.numel() != attn_output.numel():
        raise ValueError(
            f"gate: got shape {tuple(gate.shape)}; need as many elements as "
            f"{tuple(attn_output.shape)}; give one for each output"
        )
    flat = gate.reshape(attn_output.shape).float()
    result = (attn_output.float() * sigmoid(flat)).to(attn_output.dtype)
    return attn_output.copy_(result) if inplace else result


def track_mamba_states_all_layers(
    conv_states_pool: torch.Tensor,
    ssm_states_pool: torch.Tensor,
    cache_indices: torch.Tensor,
    mamba_track_mask: torch.Tensor,
    mamba_track_indices: torch.Tensor,
    batch_size: int,
    check_freed_slots: bool = False,
) -> None:
    """Copy tracked rows of every layer's pools, in place.

    Parameters
    ----------
    conv_states_pool, ssm_states_pool : Tensor ``[layers, rows, ...]``
    cache_indices, mamba_track_indices : Tensor ``[batch_size]``, integer
        Source and destination row of each request.
    mamba_track_mask : Tensor ``[batch_size]``, bool
        Requests to copy.
    batch_size : int
        How many leading entries of the three tensors count.
    check_freed_slots : bool
        Leave out requests with a negative row.

    Raises
    ------
    ValueError
        If a row is negative and `check_freed_slots` is not set.
    """
    mask = mamba_track_mask[:batch_size].bool()
    source = cache_indices[:batch_size][mask].long()
    target = mamba_track_indices[:batch_size][mask].long()
    freed = (source < 0) | (target < 0)
    if check_freed_slots:
        source, target = source[~freed], target[~freed]
    elif freed.any():
        raise ValueError(
            f"tracked rows: got {source[freed].tolist()} -> {target[freed].tolist()}; "
            "need rows of 0 or more; set check_freed_slots to leave freed ones out"
        )
    for states in (conv_states_pool, ssm_states_pool):
        states[:, target] = states[:, source]


def track_mamba_states_if_needed(
    conv_states: torch.Tensor,
    ssm_states: torch.Tensor,
    cache_indices: torch.Tensor,
    mamba_track_mask: torch.Tensor,
    mamba_track_indices: torch.Tensor,
    batch_size: int,
    check_freed_slots: bool = False,
) -> None:
    """Copy tracked rows of one layer's pools ``[rows, ...]``, in place.

    Parameters and errors are those of `track_mamba_states_all_layers`.
    """
    track_mamba_states_all_layers(
        conv_states[None],
        ssm_states[None],
        cache_indices,
        mamba_track_mask,
        mamba_track_indices,
        batch_size,
        check_freed_slots,
    )
