"""Seeded inputs and the comparisons that the tests of state_kernels share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from state_kernels import Captures, GatedDeltaResult, gated_delta_rule

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Size:
    """Numbers of heads and their sizes."""

    heads: int = 2
    value_heads: int = 4
    key_size: int = 32
    value_size: int = 32


@dataclass(frozen=True)
class Inputs:
    """Packed inputs of the gated delta rule with start states."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    beta: torch.Tensor
    lengths: tuple[int, ...]
    initial_state: torch.Tensor

    @property
    def cu_seqlens(self) -> torch.Tensor:
        return cumulative(self.lengths)

    @property
    def packed(
        self,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.q, self.k, self.v, self.g, self.beta

    def to(self, dtype: torch.dtype) -> Inputs:
        q, k, v, g, beta = (x.to(dtype) for x in self.packed)
        return Inputs(q, k, v, g, beta, self.lengths, self.initial_state.to(dtype))

    def pick(self, sequences: list[int]) -> Inputs:
        bounds = self.cu_seqlens.tolist()
        tokens = torch.cat([torch.arange(bounds[n], bounds[n + 1]) for n in sequences])
        q, k, v, g, beta = (x[tokens] for x in self.packed)
        lengths = tuple(self.lengths[n] for n in sequences)
        return Inputs(q, k, v, g, beta, lengths, self.initial_state[sequences])

    def after(self, depth: int, state: torch.Tensor) -> Inputs:
        """Return the rest of a single sequence after `depth` tokens, starting from `state`."""
        q, k, v, g, beta = (x[depth:] for x in self.packed)
        return Inputs(q, k, v, g, beta, (self.lengths[0] - depth,), state)

    def before(self, depth: int) -> Inputs:
        """Return the first `depth` tokens of a single sequence."""
        q, k, v, g, beta = (x[:depth] for x in self.packed)
        return replace(self, q=q, k=k, v=v, g=g, beta=beta, lengths=(depth,))


def run(
    inputs: Inputs, captures: Captures | None = None, pool: torch.Tensor | None = None
) -> GatedDeltaResult:
    """Run the chunked implementation with normalised queries and keys."""
    return gated_delta_rule(
        *inputs.packed,
        cu_seqlens=inputs.cu_seqlens,
        initial_state=inputs.initial_state,
        captures=captures,
        pool=pool,
        qk_l2norm=True,
        implementation="chunked",
    )


def truth(
    inputs: Inputs, captures: Captures | None = None, pool: torch.Tensor | None = None
) -> GatedDeltaResult:
    """Run the token-by-token recurrence in float64."""
    exact = inputs.to(torch.float64)
    return gated_delta_rule(
        *exact.packed,
        cu_seqlens=exact.cu_seqlens,
        initial_state=exact.initial_state,
        captures=captures,
        pool=pool,
        qk_l2norm=True,
        implementation="reference",
    )


DEFAULT_SIZE = Size()


def make_inputs(
    lengths: tuple[int, ...],
    *,
    size: Size = DEFAULT_SIZE,
    decay: tuple[float, float] = (1e-4, 5.0),
    seed: int = 0,
) -> Inputs:
    """Return random inputs whose decays ``-g`` are log-uniform between two bounds."""
    generator = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    low, high = torch.tensor(decay).log()
    spread = torch.rand(tokens, size.value_heads, generator=generator)
    return Inputs(
        q=normal(tokens, size.heads, size.key_size),
        k=normal(tokens, size.heads, size.key_size),
        v=normal(tokens, size.value_heads, size.value_size),
        g=-torch.exp(low + spread * (high - low)),
        beta=torch.rand(tokens, size.value_heads, generator=generator),
        lengths=lengths,
        initial_state=normal(len(lengths), size.value_heads, size.value_size, size.key_size),
    )


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
