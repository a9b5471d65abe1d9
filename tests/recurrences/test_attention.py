"""Attention of new tokens over all, against the softmax written out in float64."""

from __future__ import annotations

import pytest
import torch
from cases import TOLERANCE, relative_error

from state_kernels import attention, cpu
from state_kernels.attention import extend_attention


def written_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    causal: bool = True,
    window: int | None = None,
) -> torch.Tensor:
    group = query.shape[1] // key.shape[1]
    q, k, v = query.double(), key.double(), value.double()
    output = torch.empty(*query.shape[:2], value.shape[2], dtype=torch.float64)
    for row in range(len(q)):
        here = len(k) - len(q) + row
        seen = slice(max(0, here - window) if window is not None else 0, here + 1)
        seen = seen if causal else slice(None)
        for head in range(q.shape[1]):
            weights = (k[seen, head // group] @ q[row, head] * q.shape[2] ** -0.5).softmax(0)
            output[row, head] = weights @ v[seen, head // group]
    return output


def tokens(queries: int, keys: int, heads: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(queries * 1_000 + keys)
    wide, narrow = heads
    return torch.randn(queries, wide, 16), *torch.randn(2, keys, narrow, 16)


@pytest.mark.parametrize("heads", [(2, 2), (4, 1)])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (1, 70), (70, 70), (65, 130), (7, 8), (8, 8), (9, 300)]
)
@pytest.mark.parametrize("block", [8, 512])
def test_resumed_attention_is_causal_attention(
    queries: int, keys: int, heads: tuple[int, int], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "QUERY_BLOCK", block)
    query, key, value = tokens(queries, keys, heads)
    output = extend_attention(query, key, value)
    assert relative_error(output, written_out(query, key, value)) <= TOLERANCE
    if keys > queries:
        early = written_out(query, key[:-1], value[:-1])
        assert relative_error(output, early) > 100 * TOLERANCE


@pytest.mark.parametrize("window", [0, 5, 1_000])
@pytest.mark.parametrize("queries", [1, 20, 40])
def test_a_window_hides_what_is_older(
    queries: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "QUERY_BLOCK", 16)
    query, key, value = tokens(queries, 40, (4, 2))
    output = extend_attention(query, key, value, window=window)
    assert relative_error(output, written_out(query, key, value, window=window)) <= TOLERANCE


def test_without_order_every_key_is_seen() -> None:
    query, key, value = tokens(9, 4, (4, 2))
    output = extend_attention(query, key, value, causal=False)
    assert relative_error(output, written_out(query, key, value, causal=False)) <= TOLERANCE
    with pytest.raises(ValueError, match="query: got 9 tokens; need at most the 4 of key"):
        extend_attention(query, key, value)


@pytest.mark.parametrize(
    ("shapes", "window", "message"),
    [
        (((4, 2, 8), (4, 2, 8), (3, 2, 8)), None, "query, key and value: got shapes"),
        (((4, 3, 8), (4, 2, 8), (4, 2, 8)), None, "query, key and value: got shapes"),
        (((4, 2, 9), (4, 2, 8), (4, 2, 8)), None, "query, key and value: got shapes"),
        (((4, 8), (4, 2, 8), (4, 2, 8)), None, "query, key and value: got shapes"),
        (((4, 2, 8), (4, 2, 8), (4, 2, 8)), -1, "window: got -1; need at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    shapes: tuple[tuple[int, ...], ...], window: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        extend_attention(*(torch.zeros(shape) for shape in shapes), window=window)
    with pytest.raises(TypeError, match="query: got list"):
        extend_attention([[[0.0]]], torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("encoder", "is_cross_attn"), [(None, False), ([3, 0], False), ([3, 0], True)]
)
def test_a_batch_reads_its_rows_of_the_cache(
    encoder: list[int] | None, is_cross_attn: bool
) -> None:
    lengths, new = torch.tensor([50, 6]), torch.tensor([20, 6])
    encoded = torch.tensor(encoder or [0, 0])
    query, k_cache, v_cache = tokens(26, 200, (4, 2))
    req_to_token = torch.full((5, 60), 10**6)
    places = torch.randperm(200)
    for request, count, first in ((3, int(encoded[0]) + 50, 0), (1, int(encoded[1]) + 6, 100)):
        req_to_token[request, :count] = places[first : first + count]
    output = torch.full_like(query, torch.nan)
    returned = cpu.run_sdpa_forward_extend(
        None,
        query,
        output,
        k_cache,
        v_cache,
        req_to_token,
        torch.tensor([3, 1]),
        lengths,
        lengths - new,
        new,
        None if encoder is None else encoded,
        causal=not is_cross_attn,
        enable_gqa=True,
        is_cross_attn=is_cross_attn,
        sliding_window_size=-1,
    )
    assert returned is output
    first = int(encoded[0])
    rows = places[:first] if is_cross_attn else places[first : first + 50]
    expected = written_out(query[:20], k_cache[rows], v_cache[rows], causal=not is_cross_attn)
    assert relative_error(output[:20], expected) <= TOLERANCE
    if not is_cross_attn:
        rows = places[100:106]
        expected = written_out(query[20:], k_cache[rows], v_cache[rows])
        assert relative_error(output[20:], expected) <= TOLERANCE
