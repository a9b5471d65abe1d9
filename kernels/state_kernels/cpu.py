"""The operations that SGLang's layers call in a GatedDeltaNet hybrid, in plain torch.

Each function has the name, the signature and the results of SGLang's own. Arithmetic of recurrent
layers is in float32 throughout and rounded once, at the end.
"""

from __future__ import annotations

import torch

from state_kernels.attention import run_sdpa_forward_extend
from state_kernels.convolution import Activation, causal_convolution, causal_convolution_step
from state_kernels.elementwise import (
    fused_gdn_gating,
    fused_qkvzba_split_reshape_cat_contiguous,
    fused_sigmoid_mul,
    rms_norm_gated,
    track_mamba_states_all_layers,
    track_mamba_states_if_needed,
)
from state_kernels.passes import run_with_chunk_states, step
from state_kernels.recurrences.gated_delta_rule import GatedDeltaInputs, GatedDeltaRule

__all__ = [
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "chunk_gated_delta_rule",
    "fused_gdn_gating",
    "fused_qkvzba_split_reshape_cat_contiguous",
    "fused_recurrent_gated_delta_rule_packed_decode",
    "fused_sigmoid_mul",
    "rms_norm_gated",
    "run_sdpa_forward_extend",
    "track_mamba_states_all_layers",
    "track_mamba_states_if_needed",
]

PAD_SLOT_ID = -1


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    conv_states: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens_cpu: list[int],
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    activation: str | bool | None = "silu",
    pad_slot_id: int = PAD_SLOT_ID,
    validate_data: bool = False,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    """Convolve packed sequences and update their windows in the pool, in place.

    Parameters
    ----------
    x : Tensor ``[D, T]``
        Tokens past ``query_start_loc[-1]`` are padding; their output is zero.
    weight : Tensor ``[D, width]``
    bias : Tensor ``[D]``, optional
    conv_states : Tensor ``[rows, D, width - 1]``
    query_start_loc : Tensor ``[N + 1]``, integer
    seq_lens_cpu : list of int
        The same lengths once more; `query_start_loc` decides.
    cache_indices : Tensor ``[N]``, integer, optional
        Row of each sequence; ``0..N - 1`` if not given.
    has_initial_state : Tensor ``[N]``, bool, optional
        Sequences that start from their row; the others, or all, start from zeros.
    activation : {"silu", "swish", True, False, None}
    pad_slot_id : int
        Rows with this value are padding: no window is read or written.
    validate_data : bool
        Asks for checks that are always made here.
    block_table : None
        Not supported.

    Returns
    -------
    Tensor ``[D, T]``
        In x's dtype and memory layout.

    Raises
    ------
    ValueError
        If shapes do not fit or `block_table` is given.
    """
    _require_none("block_table", block_table)
    sequences = len(query_start_loc) - 1
    if cache_indices is None:
        cache_indices = torch.arange(sequences, device=x.device)
    used = cache_indices != pad_slot_id
    rows = cache_indices[used].long()
    windows = conv_states.new_zeros((sequences, *conv_states.shape[1:]))
    if has_initial_state is not None:
        resumed = used & has_initial_state.bool()
        windows[resumed] = conv_states[cache_indices[resumed].long()]
    tokens = int(query_start_loc[-1])
    convolved, final_window = causal_convolution(
        x[:, :tokens].T,
        weight,
        bias,
        cu_seqlens=query_start_loc,
        initial_window=windows,
        activation=_activation_name(activation),
    )
    conv_states[rows] = final_window[used].to(conv_states.dtype)
    output = torch.zeros_like(x)
    output[:, :tokens] = convolved.T
    return output


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: bool | str | None = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    num_accept_tokens: torch.Tensor | None = None,
    intermediate_conv_window: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    retrieve_next_token: torch.Tensor | None = None,
    retrieve_next_sibling: torch.Tensor | None = None,
    retrieve_parent_token: torch.Tensor | None = None,
    pad_slot_id: int = PAD_SLOT_ID,
    metadata: None = None,
    validate_data: bool = False,
) -> torch.Tensor:
    """Convolve the next tokens of each row and shift its window in the pool, in place.

    Parameters
    ----------
    x : Tensor ``[B, D]`` or ``[B, D, L]``
        One token, or L tokens in order, for each row.
    conv_state : Tensor ``[rows, D, width - 1]``
    weight : Tensor ``[D, width]``
    bias : Tensor ``[D]``, optional
    activation : {"silu", "swish", True, False, None}
    conv_state_indices : Tensor ``[B]``, integer, optional
        Row of the pool; ``0..B - 1`` if not given.
    pad_slot_id : int
        Rows with this value are padding: their output is zero.
    validate_data : bool
        Asks for checks that are always made here.
    cache_seqlens, num_accept_tokens, intermediate_conv_window, intermediate_state_indices
    retrieve_next_token, retrieve_next_sibling, retrieve_parent_token, metadata
        Circular buffers and speculative decoding: not supported, None.

    Returns
    -------
    Tensor
        Of x's shape and dtype.

    Raises
    ------
    ValueError
        If shapes do not fit or an unsupported argument is given.
    """
    for name, value in (
        ("cache_seqlens", cache_seqlens),
        ("num_accept_tokens", num_accept_tokens),
        ("intermediate_conv_window", intermediate_conv_window),
        ("intermediate_state_indices", intermediate_state_indices),
        ("retrieve_next_token", retrieve_next_token),
        ("retrieve_next_sibling", retrieve_next_sibling),
        ("retrieve_parent_token", retrieve_parent_token),
        ("metadata", metadata),
    ):
        _require_none(name, value)
    if conv_state_indices is None:
        conv_state_indices = torch.arange(x.shape[0], device=x.device)
    slots = torch.where(conv_state_indices == pad_slot_id, -1, conv_state_indices)
    tokens = x[..., None] if x.dim() == 2 else x
    output = torch.zeros_like(tokens)
    for place in range(tokens.shape[-1]):
        output[..., place] = causal_convolution_step(
            tokens[..., place],
            weight,
            bias,
            pool=conv_state,
            slots=slots,
            activation=_activation_name(activation),
        )
    return output.reshape(x.shape)


def chunk_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    initial_state_indices: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    inplace_update: bool = True,
) -> tuple[torch.Tensor, None, torch.Tensor]:
    """Run the gated delta rule from rows of a state pool and write the final states back.

    Parameters
    ----------
    q, k : Tensor ``[B, T, H, K]``
        B is 1 where `cu_seqlens` is given.
    v : Tensor ``[B, T, HV, V]``
    g, beta : Tensor ``[B, T, HV]``
    scale : float, optional
        ``K ** -0.5`` if not given.
    initial_state : Tensor ``[rows, HV, V, K]``, optional
        The pool; zeros if not given.
    initial_state_indices : Tensor ``[N]``, integer
        Row of each sequence; a negative one is padding: starts from zeros, is not written.
    cu_seqlens : Tensor ``[N + 1]``, integer, optional
        Tokens past its last value are padding; their output is zero.
    head_first : bool
        Not supported.
    use_qk_l2norm_in_kernel : bool
    inplace_update : bool
        Write the final states to their rows.

    Returns
    -------
    output : Tensor ``[B, T, HV, V]``
        In q's dtype.
    final_state : None
        Final states are in the pool.
    chunk_states : Tensor ``[1, chunks, HV, V, K]``
        States at chunk starts, by sequence, then by chunk, in k's dtype.

    Raises
    ------
    ValueError
        If shapes do not fit or `head_first` is set.
    """
    if head_first:
        raise ValueError("head_first: got True; need False; put tokens before heads")
    batch, length = q.shape[:2]
    if cu_seqlens is None:
        cu_seqlens = torch.arange(batch + 1, device=q.device) * length
    elif batch != 1:
        raise ValueError(f"q: got batch size {batch}; need 1 with cu_seqlens; pack the sequences")
    tokens = int(cu_seqlens[-1])
    start_states = None
    used = rows = None
    if initial_state is not None:
        if initial_state_indices is None or len(initial_state_indices) != len(cu_seqlens) - 1:
            raise ValueError(
                f"initial_state_indices: got {initial_state_indices}; "
                f"need {len(cu_seqlens) - 1} rows; name the pool row of each sequence"
            )
        used = initial_state_indices >= 0
        rows = initial_state_indices[used].long()
        start_states = initial_state.new_zeros((len(used), *initial_state.shape[1:]))
        start_states[used] = initial_state[rows]
    batched = GatedDeltaInputs(q=q, k=k, v=v, g=g, beta=beta)
    result = run_with_chunk_states(
        GatedDeltaRule(scale, use_qk_l2norm_in_kernel),
        batched.map(lambda x: x.flatten(0, 1)[:tokens]),
        cu_seqlens=cu_seqlens,
        initial_state=start_states,
    )
    if inplace_update and initial_state is not None:
        initial_state[rows] = result.final_state[used].to(initial_state.dtype)
    output = q.new_zeros(v.shape)
    output.view(-1, *v.shape[2:])[:tokens] = result.output.to(q.dtype)
    return output, None, result.chunk_states.to(k.dtype)[None]


def fused_recurrent_gated_delta_rule_packed_decode(
    mixed_qkv: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    scale: float,
    initial_state: torch.Tensor,
    out: torch.Tensor,
    ssm_state_indices: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advance one token for each row, in place on rows of a state pool.

    Parameters
    ----------
    mixed_qkv : Tensor ``[B, 2 H K + HV V]``
    a, b : Tensor ``[B, HV]``
        Inputs of the gates (see `fused_gdn_gating`).
    A_log, dt_bias : Tensor ``[HV]``
    scale : float
    initial_state : Tensor ``[rows, HV, V, K]``
        The pool.
    out : Tensor ``[B, 1, HV, V]``
        Overwritten with the result; zero for padding.
    ssm_state_indices : Tensor ``[B]``, integer
        Row of each token; negative is padding.
    use_qk_l2norm_in_kernel : bool

    Returns
    -------
    out, initial_state : Tensor
        The two arguments.

    Raises
    ------
    ValueError
        If shapes do not fit.
    """
    _, value_heads, value_size, key_size = initial_state.shape
    packed = mixed_qkv.shape[1] - value_heads * value_size
    if packed <= 0 or packed % (2 * key_size):
        raise ValueError(
            f"mixed_qkv: got width {mixed_qkv.shape[1]}; need 2 H {key_size} + "
            f"{value_heads * value_size}; pack q, k and v of this pool's heads"
        )
    half = packed // 2
    q, k, v = mixed_qkv[:, :half], mixed_qkv[:, half:packed], mixed_qkv[:, packed:]
    log_decay, beta = fused_gdn_gating(A_log, a, b, dt_bias)
    result = step(
        GatedDeltaRule(scale, use_qk_l2norm_in_kernel),
        GatedDeltaInputs(
            q=q.reshape(len(q), -1, key_size),
            k=k.reshape(len(k), -1, key_size),
            v=v.reshape(len(v), value_heads, value_size),
            g=log_decay[0],
            beta=beta[0],
        ),
        pool=initial_state,
        slots=ssm_state_indices,
    )
    out.copy_(result[:, None])
    return out, initial_state


def _activation_name(activation: str | bool | None) -> Activation | None:
    if activation is True or activation == "silu":
        return "silu"
    if activation is False or activation is None:
        return None
    if activation == "swish":
        return "swish"
    raise ValueError(
        f"activation: got {activation!r}; need 'silu', 'swish' or None; apply others afterwards"
    )


def _require_none(name: str, value: object) -> None:
    if value is not None:
        raise ValueError(
            f"{name}: got {type(value).__name__}; need None; "
            "serve without speculative decoding or CUDA graphs"
        )
