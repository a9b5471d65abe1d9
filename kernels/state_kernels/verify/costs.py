"""Times in full shapes: a pass, what captures add to it, and copies of states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

import torch

from state_kernels.passes import Implementation
from state_kernels.pools import StatePools
from state_kernels.records import Captures
from state_kernels.recurrence import Recurrence, Sizes
from state_kernels.transfer import CopyImplementation, copy_states
from state_kernels.verify.records import Cost
from state_kernels.verify.trial import Trial, implementations_on, make_trial, timed

CAPTURE_COUNTS = (1, 4, 16, 64)


class Scale(NamedTuple):
    """How large the measured shapes are, and how often each is run."""

    tokens: int
    sizes: Sizes
    slots: int
    layers: int
    repetitions: int


def scale_of(device: torch.device, *, quick: bool) -> Scale:
    """Return shapes that a device runs in seconds."""
    if quick:
        return Scale(1024, Sizes(2, 2, 64, 64), slots=4, layers=2, repetitions=3)
    if device.type == "cuda":
        return Scale(16_384, Sizes(16, 32, 128, 128), slots=64, layers=24, repetitions=20)
    return Scale(1024, Sizes(8, 8, 128, 128), slots=8, layers=6, repetitions=5)


def copy_bandwidth(device: torch.device, *, quick: bool) -> float:
    """Return bytes a second of a plain copy on a device, reads and writes counted."""
    size = 1 << (30 if device.type == "cuda" else 26 if quick else 28)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    seconds = [timed(lambda: target.copy_(source), device)[1] for _ in range(5)]
    return 2 * size / min(seconds)


def pass_costs(
    recurrence: Recurrence[Any, Any], device: torch.device, bandwidth: float, scale: Scale
) -> Iterator[Cost]:
    """Yield the cost of a pass of every implementation, with captures at equal distances."""
    trial = make_trial(recurrence, (scale.tokens,), scale.sizes, device)
    pool = torch.empty(max(CAPTURE_COUNTS), *trial.inputs.state_shape, device=device)
    tensors = (*trial.inputs.tensors(), trial.inputs.v, trial.initial_state, trial.initial_state)
    bytes_moved = sum(x.numel() * x.element_size() for x in tensors)
    for implementation in _measured_on(device):

        def plain(implementation: Implementation = implementation) -> object:
            return trial.run(implementation)

        plain()
        overheads, seconds = [], []
        for count in CAPTURE_COUNTS:
            captures = _evenly(trial, count)

            def captured(
                captures: Captures = captures, name: Implementation = implementation
            ) -> object:
                return trial.run(name, captures, pool)

            captured()
            pairs = _in_turns(plain, captured, scale.repetitions, device)
            overheads.append(median(b / a for a, b in pairs) - 1)
            seconds += [a for a, _ in pairs]
        time = median(seconds)
        yield Cost(
            recurrence.name,
            implementation,
            scale.tokens,
            time,
            bytes_moved,
            bytes_moved / time / bandwidth,
            tuple(overheads),
        )


def copy_costs(device: torch.device, bandwidth: float, scale: Scale) -> Iterator[Cost]:
    """Yield the cost of copying states between the slots of all layers."""
    row = (scale.sizes.value_heads, scale.sizes.value_size, scale.sizes.key_size)
    pools = StatePools(torch.ones(scale.layers, 2 * scale.slots, *row, device=device))
    taken, written = range(scale.slots), range(scale.slots, 2 * scale.slots)
    bytes_moved = 2 * scale.slots * sum(pools.row_bytes)
    for name in _measured_on(device):
        implementation: CopyImplementation = "triton" if name == "triton" else "torch"

        def copy(implementation: CopyImplementation = implementation) -> None:
            copy_states(pools, taken, pools, written, implementation=implementation)

        copy()
        time = median(timed(copy, device)[1] for _ in range(max(3, scale.repetitions)))
        share = bytes_moved / time / bandwidth
        yield Cost("copy", implementation, 0, time, bytes_moved, share)


def _measured_on(device: torch.device) -> tuple[Implementation, ...]:
    """Return the implementations whose times mean something: not Triton's interpreter's."""
    return implementations_on(device) if device.type == "cuda" else ("chunked",)


def _evenly(trial: Trial, count: int) -> Captures:
    """Return captures on the grid where there are as many depths, at equal distances."""
    length = trial.lengths[0]
    depth = torch.arange(1, count + 1) * length // count
    return Captures(torch.zeros_like(depth), depth, torch.arange(count))


def _in_turns(
    one: Callable[[], object],
    other: Callable[[], object],
    repetitions: int,
    device: torch.device,
) -> list[tuple[float, float]]:
    """Return the seconds of both, called one after the other."""
    return [(timed(one, device)[1], timed(other, device)[1]) for _ in range(repetitions)]
