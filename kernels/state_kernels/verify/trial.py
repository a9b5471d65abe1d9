"""Seeded passes of a recurrence, and its truth: token by token in float64."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

import torch

from state_kernels.gpu import require_triton
from state_kernels.passes import Implementation, run
from state_kernels.records import Captures, RecurrenceResult
from state_kernels.recurrence import EXAMPLE_DECAY, Inputs, Recurrence, Sizes

SLOW_DECAY = (1e-4, 1e-2)
"""Under these a state matters for hundreds of tokens, so a wrong one shows."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Trial:
    """Packed sequences on one device, with start states, and the rule to run over them."""

    recurrence: Recurrence[Any, Any]
    inputs: Inputs
    lengths: tuple[int, ...]
    initial_state: torch.Tensor

    @property
    def cu_seqlens(self) -> torch.Tensor:
        return torch.tensor([0, *accumulate(self.lengths)])

    def run(
        self,
        implementation: Implementation,
        captures: Captures | None = None,
        pool: torch.Tensor | None = None,
    ) -> RecurrenceResult:
        return run(
            self.recurrence,
            self.inputs,
            cu_seqlens=self.cu_seqlens,
            initial_state=self.initial_state,
            captures=captures,
            pool=pool,
            implementation=implementation,
        )

    def exact(self) -> Trial:
        """Return the same pass in float64 on the CPU."""
        return replace(
            self,
            inputs=self.inputs.map(lambda x: x.double().cpu()),
            initial_state=self.initial_state.double().cpu(),
        )

    def rest(self, depth: int, state: torch.Tensor) -> Trial:
        """Return the first sequence after `depth` tokens, starting from `state`."""
        end = self.lengths[0]
        return replace(
            self,
            inputs=self.inputs.map(lambda x: x[depth:end]),
            lengths=(end - depth,),
            initial_state=state[None],
        )


def make_trial(
    recurrence: Recurrence[Any, Any],
    lengths: tuple[int, ...],
    sizes: Sizes,
    device: torch.device,
    decay: tuple[float, float] = EXAMPLE_DECAY,
) -> Trial:
    """Return random sequences with random start states, the same on every device."""
    generator = torch.Generator().manual_seed(0)
    inputs = recurrence.example(sum(lengths), sizes, generator, decay)
    state = torch.randn(len(lengths), *inputs.state_shape, generator=generator)
    return Trial(recurrence, inputs.map(lambda x: x.to(device)), lengths, state.to(device))


def implementations_on(device: torch.device) -> tuple[Implementation, ...]:
    """Return the implementations to be checked on a device."""
    try:
        require_triton(device)
    except ValueError:
        return ("chunked",)
    return ("chunked", "triton")


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the Frobenius norm of the difference over that of the expected value.

    Infinite where it is no number, so that a largest error shows it.
    """
    expected = expected.double().cpu()
    error = float((got.double().cpu() - expected).norm() / expected.norm())
    return math.inf if math.isnan(error) else error


def timed(function: Callable[[], ResultT], device: torch.device) -> tuple[ResultT, float]:
    """Return what a function returns, and the seconds until the device has done its work."""
    synchronize(device)
    start = time.perf_counter()
    result = function()
    synchronize(device)
    return result, time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    """Wait for a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
