"""Causal convolution against torch's own and a token-by-token one; windows at any depth."""

from __future__ import annotations

import pytest
import torch
from cases import TOLERANCE, cumulative, poisoned, relative_error, same_bits

from state_kernels import (
    Captures,
    capture_windows,
    causal_convolution,
    causal_convolution_step,
    reference_convolution,
)

LENGTHS = (1, 2, 3, 70, 0, 5)
CHANNELS = 24


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(sum(LENGTHS), CHANNELS, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def windows() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(LENGTHS), CHANNELS, 3, generator=generator)


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(CHANNELS, 4, generator=torch.Generator().manual_seed(2))


def test_against_a_token_loop(x: torch.Tensor, windows: torch.Tensor, weight: torch.Tensor) -> None:
    bias = weight[:, 0] + 0.5
    cu_seqlens = cumulative(LENGTHS)
    got = causal_convolution(
        x, weight, bias, cu_seqlens=cu_seqlens, initial_window=windows, activation="silu"
    )
    output, window = reference_convolution(
        x.double(),
        weight.double(),
        bias.double(),
        cu_seqlens=cu_seqlens,
        initial_window=windows.double(),
        activation="silu",
    )
    assert relative_error(got.output, output) <= TOLERANCE
    assert same_bits(got.final_window, window.float())


def test_against_torch_and_a_shifted_window_is_caught(
    x: torch.Tensor, windows: torch.Tensor, weight: torch.Tensor
) -> None:
    tokens = x[:30]
    padded = torch.cat([windows[0], tokens.T], dim=1)
    expected = torch.nn.functional.conv1d(padded[None], weight[:, None], groups=CHANNELS)[0].T
    for window, passes in ((windows[0], True), (windows[0].roll(1, dims=1), False)):
        got = causal_convolution(
            tokens, weight, cu_seqlens=cumulative((30,)), initial_window=window[None]
        )
        assert (relative_error(got.output, expected) <= TOLERANCE) is passes


def test_windows_at_every_depth(
    x: torch.Tensor, windows: torch.Tensor, weight: torch.Tensor
) -> None:
    pairs = [(n, d) for n, length in enumerate(LENGTHS) for d in range(1, length + 1)]
    sequence, depth = (torch.tensor(column) for column in zip(*pairs, strict=True))
    captures = Captures(sequence, depth, torch.arange(len(pairs)) + 2)
    pool = poisoned(len(pairs) + 4, CHANNELS, 3)
    cu_seqlens = cumulative(LENGTHS)
    capture_windows(x, cu_seqlens=cu_seqlens, initial_window=windows, captures=captures, pool=pool)
    for slot, (n, d) in enumerate(pairs, start=2):
        start = int(cu_seqlens[n])
        past = torch.cat([windows[n].T, x[start : start + d]])
        assert same_bits(pool[slot], past[-3:].T)
    assert same_bits(pool[[0, 1, -2, -1]], poisoned(4, CHANNELS, 3))


def test_steps_continue_to_the_bit_and_skip_padding(
    x: torch.Tensor, windows: torch.Tensor, weight: torch.Tensor
) -> None:
    tokens = x[:40]
    whole = causal_convolution(
        tokens,
        weight,
        cu_seqlens=cumulative((40,)),
        initial_window=windows[:1],
        activation="silu",
    )
    pool = poisoned(4, CHANNELS, 3)
    pool[2] = windows[0]
    for token in range(40):
        rows = tokens[token].expand(2, CHANNELS)
        output = causal_convolution_step(
            rows, weight, pool=pool, slots=torch.tensor([-1, 2]), activation="silu"
        )
        assert not output[0].any()
        assert same_bits(output[1], whole.output[token])
    assert same_bits(pool[2], whole.final_window[0])
    assert same_bits(pool[[0, 1, 3]], poisoned(3, CHANNELS, 3))


def test_bad_arguments_are_refused(x: torch.Tensor, weight: torch.Tensor) -> None:
    cu_seqlens = cumulative(LENGTHS)
    with pytest.raises(ValueError, match="x and weight: got shapes"):
        causal_convolution(x.T, weight, cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="bias: got shape"):
        causal_convolution(x, weight, weight, cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="activation: got 'relu'"):
        causal_convolution(
            x,
            weight,
            cu_seqlens=cu_seqlens,
            activation="relu",  # type: ignore[arg-type]
        )
    with pytest.raises(ValueError, match="initial_window: got shape"):
        causal_convolution(
            x, weight, cu_seqlens=cu_seqlens, initial_window=x.new_zeros(1, CHANNELS, 3)
        )
    for convolution in (causal_convolution, reference_convolution):
        with pytest.raises(ValueError, match="activation: got 'gelu'"):
            convolution(x, weight, None, cu_seqlens=cu_seqlens, activation="gelu")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"x: got torch\.int32; need a floating"):
            convolution(x.int(), weight, None, cu_seqlens=cu_seqlens)
        with pytest.raises(TypeError, match="weight: got list"):
            convolution(x, weight.tolist(), None, cu_seqlens=cu_seqlens)


def test_bad_pools_of_windows_are_refused(x: torch.Tensor, weight: torch.Tensor) -> None:
    captures = Captures(*(torch.tensor([n]) for n in (3, 7, 0)))
    pools = {
        r"pool: got torch\.int8": torch.zeros(5, CHANNELS, 3, dtype=torch.int8),
        "pool: got strides": torch.zeros(1, CHANNELS, 3).expand(5, -1, -1),
        r"pool: got shape \(\); need \[slots": torch.zeros(()),
        "pool: got shape": torch.zeros(5, CHANNELS + 1, 3),
    }
    for message, pool in pools.items():
        with pytest.raises(ValueError, match=message):
            capture_windows(x, cu_seqlens=cumulative(LENGTHS), captures=captures, pool=pool)
        with pytest.raises(ValueError, match=message):
            causal_convolution_step(x[:1], weight, pool=pool, slots=torch.tensor([0]))
        assert not pool.any()


def test_no_gradient_follows_windows_into_the_pool(x: torch.Tensor, weight: torch.Tensor) -> None:
    captures = Captures(*(torch.tensor([n]) for n in (3, 7, 0)))
    training, pool = x.clone().requires_grad_(), torch.zeros(5, CHANNELS, 3)
    for _ in range(2):
        capture_windows(training, cu_seqlens=cumulative(LENGTHS), captures=captures, pool=pool)
        output = causal_convolution_step(training[:1], weight, pool=pool, slots=torch.tensor([1]))
        assert not pool.requires_grad
        assert output.requires_grad
    assert same_bits(pool[0], x[10:13].T)
