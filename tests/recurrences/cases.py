"""Seeded passes of every recurrence, and the comparisons that the tests of state_kernels share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from state_kernels import Captures, Recurrence, RecurrenceResult, run
from state_kernels.passes import Implementation
from state_kernels.recurrence import Inputs, Sizes

TOLERANCE = 1e-5
SIZES = Sizes(heads=2, value_heads=4, key_size=32, value_size=32)
SLOW = (1e-4, 1e-2)
"""Decays under which a state matters for hundreds of tokens."""


@dataclass(frozen=True)
class Pass:
    """Packed sequences with start states, and the rule to run over them."""

    recurrence: Recurrence[Any, Any]
    inputs: Inputs
    lengths: tuple[int, ...]
    initial_state: torch.Tensor

    @property
    def cu_seqlens(self) -> torch.Tensor:
        return cumulative(self.lengths)

    @property
    def row(self) -> tuple[int, ...]:
        """Shape of one sequence's state."""
        return self.inputs.state_shape

    def to(self, dtype: torch.dtype) -> Pass:
        return replace(
            self,
            inputs=self.inputs.map(lambda x: x.to(dtype)),
            initial_state=self.initial_state.to(dtype),
        )

    def pick(self, sequences: list[int]) -> Pass:
        """Return some of the sequences, in the order given."""
        bounds = self.cu_seqlens.tolist()
        tokens = torch.cat([torch.arange(bounds[n], bounds[n + 1]) for n in sequences])
        return replace(
            self,
            inputs=self.inputs.map(lambda x: x[tokens]),
            lengths=tuple(self.lengths[n] for n in sequences),
            initial_state=self.initial_state[sequences],
        )

    def after(self, depth: int, state: torch.Tensor) -> Pass:
        """Return the rest of a single sequence after `depth` tokens, starting from `state`."""
        return replace(
            self,
            inputs=self.inputs.map(lambda x: x[depth:]),
            lengths=(self.lengths[0] - depth,),
            initial_state=state,
        )

    def before(self, depth: int) -> Pass:
        """Return the first `depth` tokens of a single sequence."""
        return replace(self, inputs=self.inputs.map(lambda x: x[:depth]), lengths=(depth,))

    def run(
        self,
        captures: Captures | None = None,
        pool: torch.Tensor | None = None,
        implementation: Implementation = "chunked",
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

    def truth(
        self, captures: Captures | None = None, pool: torch.Tensor | None = None
    ) -> RecurrenceResult:
        """Run token by token in float64."""
        return self.to(torch.float64).run(captures, pool, "reference")


def make_pass(
    recurrence: Recurrence[Any, Any],
    lengths: tuple[int, ...],
    *,
    sizes: Sizes = SIZES,
    decay: tuple[float, float] | None = None,
    seed: int = 0,
) -> Pass:
    """Return random sequences; `decay` bounds the log decays ``-g`` instead of the example's."""
    generator = torch.Generator().manual_seed(seed)
    inputs = recurrence.example(
        sum(lengths), sizes, generator, *(() if decay is None else (decay,))
    )
    state = torch.randn(len(lengths), *inputs.state_shape, generator=generator)
    return Pass(recurrence, inputs, lengths, state)


def forgetting(given: Pass, log_decay: float) -> Pass:
    """Return the pass with this log decay for some tokens, about the chunks' ends too."""
    name = "w" if given.recurrence.name == "rwkv7" else "g"
    decays = getattr(given.inputs, name).clone()
    decays[[0, 40, 63, 64, 65, 128]] = log_decay
    return replace(given, inputs=replace(given.inputs, **{name: decays}))


def cumulative(lengths: tuple[int, ...]) -> torch.Tensor:
    """Return cumulative sequence lengths."""
    return torch.tensor([0, *accumulate(lengths)])


def capture_all(sequence: int, depths: range, slots: range) -> Captures:
    """Return captures of one sequence at many depths."""
    depth = torch.tensor(list(depths), dtype=torch.int64)
    slot = torch.tensor(list(slots), dtype=torch.int64)
    return Captures(torch.full_like(depth, sequence), depth, slot)


def poisoned(slots: int, *row: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a pool full of NaN."""
    return torch.full((slots, *row), torch.nan, dtype=dtype)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the Frobenius norm of the difference over that of the expected value."""
    return float((got.double() - expected.double()).norm() / expected.double().norm())


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors agree to the bit, NaN included."""
    return a.dtype == b.dtype and torch.equal(
        a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)
    )
