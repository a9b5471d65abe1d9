"""Checks of what is kept beside and after a pass: windows, copies of states, states in 8 bits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from state_kernels.convolution import capture_windows, causal_convolution
from state_kernels.pools import StatePools
from state_kernels.quantize import QuantizedStates, dequantize_states, quantize_states
from state_kernels.records import Captures
from state_kernels.reference import reference_convolution
from state_kernels.transfer import CopyImplementation, copy_states
from state_kernels.verify.records import TOLERANCE, Check
from state_kernels.verify.trial import implementations_on, relative_error, timed

CHANNELS, WIDTH = 192, 4
DEPTHS = (1, 2, 3, 4, 64, 100)
SLOTS = 12
COPIED, INTO = (11, 0, 3, 7, 7), (0, 3, 7, 11, 2)
STEP_SHARE = 1 / 254 + 2e-7


def check_convolution(device: torch.device) -> Iterator[Check]:
    """Yield the checks of the causal convolution and of its captured windows."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(170, CHANNELS, generator=generator)
    weight = torch.randn(CHANNELS, WIDTH, generator=generator)
    windows = torch.randn(2, CHANNELS, WIDTH - 1, generator=generator)
    cu_seqlens = torch.tensor([0, 100, 170])
    on_device = [t.to(device) for t in (x, weight, windows)]

    def convolve(weights: torch.Tensor) -> torch.Tensor:
        return causal_convolution(
            on_device[0], weights, cu_seqlens=cu_seqlens, initial_window=on_device[2]
        ).output

    expected, _ = reference_convolution(
        x.double(), weight.double(), None, cu_seqlens=cu_seqlens, initial_window=windows.double()
    )
    got, seconds = timed(lambda: convolve(on_device[1]), device)
    reversed_weight = on_device[1].flip(1)
    yield Check(
        "convolution",
        "torch",
        "outputs",
        relative_error(got, expected),
        TOLERANCE,
        "weights in reverse",
        relative_error(convolve(reversed_weight), expected),
        seconds,
    )

    pool = torch.full((len(DEPTHS), CHANNELS, WIDTH - 1), torch.nan, device=device)
    depth = torch.tensor(DEPTHS)
    captures = Captures(torch.zeros_like(depth), depth, torch.arange(len(DEPTHS)))
    _, seconds = timed(
        lambda: capture_windows(
            on_device[0],
            cu_seqlens=cu_seqlens,
            initial_window=on_device[2],
            captures=captures,
            pool=pool,
        ),
        device,
    )
    history = torch.cat([windows[0], x[:100].T], dim=1)
    exact = torch.stack([history[:, d : d + WIDTH - 1] for d in DEPTHS])
    before = torch.stack([history[:, d - 1 : d + WIDTH - 2] for d in DEPTHS])
    yield Check(
        "convolution",
        "torch",
        "captured windows",
        differing_bytes(pool, exact),
        0,
        "windows one token back",
        differing_bytes(pool, before),
        seconds,
    )


def check_copies(device: torch.device) -> Iterator[Check]:
    """Yield the checks of copies within pools, and through a packed buffer on the host."""
    for name in implementations_on(device):
        implementation: CopyImplementation = "triton" if name == "triton" else "torch"
        pools = _random_pools(device)
        before = [rows.cpu().clone() for rows in pools.tensors]
        expected = [rows.clone() for rows in before]
        for rows, was in zip(expected, before, strict=True):
            rows[list(INTO)] = was[list(COPIED)]

        _, seconds = timed(partial(_permute, pools, implementation), device)
        yield Check(
            "copy",
            implementation,
            "permuted slots",
            _differing(pools, expected),
            0,
            "slots left as they were",
            _differing(pools, before),
            seconds,
        )
        _, seconds = timed(partial(_there_and_back, pools, implementation), device)
        yield Check(
            "copy",
            implementation,
            "to the host and back",
            _differing(pools, expected),
            0,
            "zeros",
            _differing(pools, [torch.zeros_like(rows) for rows in expected]),
            seconds,
        )


def _permute(pools: StatePools, implementation: CopyImplementation) -> None:
    copy_states(pools, COPIED, pools, INTO, implementation=implementation)


def _there_and_back(pools: StatePools, implementation: CopyImplementation) -> None:
    host, slots = pools.packed(SLOTS, device="cpu"), range(SLOTS)
    copy_states(pools, slots, host, slots, implementation=implementation)
    for rows in pools.tensors:
        rows.zero_()
    copy_states(host, slots, pools, slots, implementation=implementation)


def check_quantized(device: torch.device) -> Iterator[Check]:
    """Yield the check of states in 8 bits against the bound of their error."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(SLOTS, 4, 64, 64, generator=generator).to(device)
    quantized, seconds = timed(lambda: quantize_states(states), device)
    coarse = QuantizedStates(quantized.values // 2 * 2, quantized.scale)
    largest = states.double().abs().amax(dim=-1, keepdim=True)

    def error(kept: QuantizedStates) -> float:
        difference = dequantize_states(kept).double() - states.double()
        return float((difference.abs() / largest).max())

    yield Check(
        "8 bits",
        "torch",
        "quantized states",
        error(quantized),
        STEP_SHARE,
        "7 bits",
        error(coarse),
        seconds,
    )


def differing_bytes(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return how many bytes of two tensors differ."""
    pair = (x.cpu().contiguous().view(torch.uint8) for x in (got, expected))
    return float((next(pair) != next(pair)).sum())


def _random_pools(device: torch.device) -> StatePools:
    """Return pools of random bits: numbers of every kind, NaN included."""
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(256, (3, SLOTS, 2, 16, 64), generator=generator).to(torch.uint8)
    windows = torch.randint(256, (3, SLOTS, 21, 6), generator=generator).to(torch.uint8)
    return StatePools(bits.view(torch.float32).to(device), windows.view(torch.bfloat16).to(device))


def _differing(pools: StatePools, expected: list[torch.Tensor]) -> float:
    return sum(map(differing_bytes, pools.tensors, expected))
