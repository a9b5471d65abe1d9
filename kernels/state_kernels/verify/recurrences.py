"""Checks of a recurrence: its outputs, the states captured in a pass, and passes resumed there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from state_kernels.passes import Implementation
from state_kernels.records import Captures
from state_kernels.recurrence import Recurrence, Sizes
from state_kernels.verify.records import TOLERANCE, Check
from state_kernels.verify.trial import (
    SLOW_DECAY,
    Trial,
    implementations_on,
    make_trial,
    relative_error,
    timed,
)

SIZES = Sizes(heads=2, value_heads=4, key_size=64, value_size=64)
LENGTHS = (1, 63, 64, 65, 127, 500)
LONG = 2049
CAPTURE_LENGTHS = (330, 70)
CAPTURE_DEPTHS = (1, 2, 63, 64, 65, 100, 127, 128, 191, 192, 257, 329, 330)
RESUMED_DEPTHS = (1, 64, 100, 192, 257)


def check_recurrence(
    recurrence: Recurrence[Any, Any], device: torch.device, *, quick: bool
) -> Iterator[Check]:
    """Yield the checks of every implementation of a recurrence that a device can run."""
    lengths = LENGTHS if quick else (*LENGTHS, LONG)
    outputs = make_trial(recurrence, lengths, SIZES, device)
    captured = make_trial(recurrence, CAPTURE_LENGTHS, SIZES, device, SLOW_DECAY)
    checks: list[_Outputs | _Captured] = [_Outputs(outputs), _Captured(captured)]
    for implementation in implementations_on(device):
        for check in checks:
            yield from check.of(implementation)


class _Outputs:
    """Outputs and final states of sequences of many lengths in one batch."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._truth = trial.exact().run("reference")

    def of(self, implementation: Implementation) -> Iterator[Check]:
        trial = self._trial
        trial.run(implementation)  # Compiles.
        got, seconds = timed(lambda: trial.run(implementation), trial.initial_state.device)
        v = trial.inputs.v.clone()
        v[len(v) // 2] *= 1.01
        wrong = replace(trial, inputs=replace(trial.inputs, v=v)).run(implementation)
        yield Check(
            trial.recurrence.name,
            implementation,
            "outputs, final states",
            max(map(relative_error, got, self._truth)),
            TOLERANCE,
            "one value 1 % larger",
            max(map(relative_error, wrong, self._truth)),
            seconds,
        )


class _Captured:
    """States captured on and off the grid, and the rest of a sequence resumed from them."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        # The depths after those captured, too: states that a wrong count would have given.
        depths = sorted({d for depth in CAPTURE_DEPTHS for d in (depth, depth + 1)})
        depths = [depth for depth in depths if depth <= trial.lengths[0]]
        row = trial.inputs.state_shape
        pool = torch.zeros(len(depths), *row, dtype=torch.float64)
        self._truth = trial.exact().run("reference", _captures(depths), pool)
        self._states = dict(zip(depths, pool, strict=True))

    def of(self, implementation: Implementation) -> Iterator[Check]:
        trial, slots = self._trial, len(CAPTURE_DEPTHS)
        device = trial.initial_state.device
        pool = torch.full((slots + 1, *trial.inputs.state_shape), torch.nan, device=device)
        captures = _captures(CAPTURE_DEPTHS)
        trial.run(implementation, captures, torch.empty_like(pool))  # Compiles.
        _, seconds = timed(lambda: trial.run(implementation, captures, pool), device)
        untouched = bool(pool[slots].isnan().all())
        states = dict(zip(CAPTURE_DEPTHS, pool, strict=False))
        errors = [relative_error(states[d], self._states[d]) for d in CAPTURE_DEPTHS]
        neighbours = [
            relative_error(states[d], self._states[d + 1])
            for d in CAPTURE_DEPTHS
            if d + 1 in self._states
        ]
        yield Check(
            trial.recurrence.name,
            implementation,
            "captured states",
            max(errors) if untouched else float("inf"),
            TOLERANCE,
            "states one token on",
            min(neighbours),
            seconds,
        )
        deepest = RESUMED_DEPTHS[-1]
        _, seconds = timed(lambda: trial.rest(deepest, states[deepest]).run(implementation), device)
        zeros = dict.fromkeys(RESUMED_DEPTHS, torch.zeros_like(pool[0]))
        yield Check(
            trial.recurrence.name,
            implementation,
            "resumed outputs",
            max(self._resumed(implementation, states)),
            TOLERANCE,
            "zeros for a state",
            min(self._resumed(implementation, zeros)),
            seconds,
        )

    def _resumed(
        self, implementation: Implementation, states: dict[int, torch.Tensor]
    ) -> list[float]:
        """Return the errors of the first sequence's rest, resumed at each depth from a state."""
        end, errors = self._trial.lengths[0], []
        for depth in RESUMED_DEPTHS:
            output, state = self._trial.rest(depth, states[depth]).run(implementation)
            errors.append(
                max(
                    relative_error(output, self._truth.output[depth:end]),
                    relative_error(state[0], self._truth.final_state[0]),
                )
            )
        return errors


def _captures(depths: tuple[int, ...] | list[int]) -> Captures:
    """Return captures of the first sequence, into one slot after the other."""
    depth = torch.tensor(depths)
    return Captures(torch.zeros_like(depth), depth, torch.arange(len(depths)))
