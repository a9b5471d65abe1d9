"""Attention of a prompt's new tokens over all of its tokens, in torch, and as SGLang calls it."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from state_kernels.tensors import check_floating

QUERY_BLOCK = 512
"""Queries that share a mask: its memory is this times the keys."""


def extend_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
) -> torch.Tensor:
    """Attend from the last T of S tokens to the tokens before each, and to itself.

    Parameters
    ----------
    query : Tensor ``[T, H, K]``
    key : Tensor ``[S, HK, K]``
    value : Tensor ``[S, HK, V]``
        Each of the HK heads serves H / HK query heads in order.
    scale : float, optional
        ``K ** -0.5`` if not given.
    causal : bool
        Without it, each query sees all keys, and T may exceed S.
    window : int, optional
        With `causal`: a query sees this many tokens before its own, not all.

    Returns
    -------
    Tensor ``[T, H, V]``
        In query's dtype.

    Raises
    ------
    TypeError
        If one of them is not a tensor.
    ValueError
        If types, shapes or the window do not fit, or a causal pass has more queries than keys.

    Notes
    -----
    Time is that of T S products; memory beyond the result `QUERY_BLOCK` S.
    """
    _check(query, key, value, window)
    queries, keys = len(query), len(key)
    if causal and queries > keys:
        raise ValueError(
            f"query: got {queries} tokens; need at most the {keys} of key; pass all keys"
        )
    query, key, value = (x.movedim(0, 1)[None] for x in (query, key, value))
    key, value = key.to(query.dtype), value.to(query.dtype)
    output = query.new_empty((*query.shape[:3], value.shape[3]))
    grouped = query.shape[1] != key.shape[1]
    before = keys - queries
    whole = not causal or (before == 0 and window is None)
    step = max(queries, 1) if whole else QUERY_BLOCK
    for first in range(0, queries, step):
        last = min(first + step, queries)
        seen = before + last if causal else keys
        mask = None if whole else _visible(before + first, last - first, seen, window, query.device)
        output[:, :, first:last] = scaled_dot_product_attention(
            query[:, :, first:last],
            key[:, :, :seen],
            value[:, :, :seen],
            attn_mask=mask,
            is_causal=causal and whole,
            scale=scale,
            enable_gqa=grouped,
        )
    return output[0].movedim(1, 0)


def run_sdpa_forward_extend(
    self: object,
    query: torch.Tensor,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    encoder_lens: torch.Tensor | None = None,
    scaling: float | None = None,
    enable_gqa: bool = False,
    causal: bool = False,
    is_cross_attn: bool = False,
    sliding_window_size: int | None = None,
) -> torch.Tensor:
    """Attend from each sequence's new tokens to all of its tokens in the cache.

    SGLang's own computes the attention of the cached tokens as well and drops it, so that a prompt
    that resumes deep pays as much as one that starts afresh.

    Parameters
    ----------
    self
        SGLang's attention back end, of which this is a method; not used.
    query : Tensor ``[T, H, K]``
        New tokens, packed.
    output : Tensor ``[T, H, V]``
        Overwritten.
    k_cache, v_cache : Tensor ``[rows, HK, K]`` and ``[rows, HK, V]``
    req_to_token : Tensor ``[requests, context]``, integer
        Rows of the cache by position, those of the encoder's tokens first.
    req_pool_indices, seq_lens, extend_prefix_lens, extend_seq_lens : Tensor ``[N]``, integer
        Of each sequence its row of `req_to_token`, and how many tokens it has, had before and has
        newly.
    encoder_lens : Tensor ``[N]``, integer, optional
    scaling : float, optional
        ``K ** -0.5`` if not given.
    enable_gqa : bool
        Not read: heads are grouped where there are fewer of the cache's.
    causal, is_cross_attn : bool
    sliding_window_size : int, optional
        Tokens before its own that a query sees, and none after it; below 0 is all.

    Returns
    -------
    Tensor
        `output`.
    """
    window = sliding_window_size
    if window is not None and window < 0:
        window = None
    encoded = torch.zeros_like(seq_lens) if encoder_lens is None else encoder_lens
    start = 0
    columns = (req_pool_indices, seq_lens, extend_seq_lens, encoded)
    for request, length, new, encoder in zip(*(x.tolist() for x in columns), strict=True):
        first, last = (0, encoder) if is_cross_attn else (encoder, encoder + length)
        rows = req_to_token[request, first:last]
        output[start : start + new] = extend_attention(
            query[start : start + new],
            k_cache[rows],
            v_cache[rows],
            scale=scaling,
            causal=causal or window is not None,
            window=window,
        )
        start += new
    return output


def _check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None) -> None:
    check_floating(query=query, key=key, value=value)
    shapes = tuple(tuple(x.shape) for x in (query, key, value))
    if (
        {len(shape) for shape in shapes} != {3}
        or key.shape[:2] != value.shape[:2]
        or query.shape[2] != key.shape[2]
        or 0 in key.shape[1:]
        or query.shape[1] % key.shape[1]
    ):
        raise ValueError(
            f"query, key and value: got shapes {shapes}; need [T, H, K], [S, HK, K] and "
            "[S, HK, V], H a multiple of HK; put tokens first"
        )
    if window is not None and window < 0:
        raise ValueError(f"window: got {window}; need at least 0; leave it out for no window")


def _visible(
    first: int, queries: int, keys: int, window: int | None, device: torch.device
) -> torch.Tensor:
    """Return which keys ``[queries, keys]`` the queries from position `first` on see."""
    visible = torch.ones(queries, keys, dtype=torch.bool, device=device).tril_(first)
    return visible if window is None else visible.triu_(first - window)
