"""What a recurrence is: a rule for one token, and the same rule for a chunk of 64.

A state is a matrix ``[V, K]`` for each head. A recurrence is one file in
`state_kernels.recurrences`: its inputs, a subclass of `Recurrence`, the function that users call,
and ``RECURRENCE``, the rule with its default options. Whatever is in that folder is verified and
tested.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch

from state_kernels.gpu.terms import KernelTerms
from state_kernels.records import TensorRecord


@dataclass(frozen=True)
class Inputs(TensorRecord):
    """Inputs of a recurrence, packed ``[T, heads, ...]``; every recurrence adds its own.

    A token of zeros leaves the state as it is: chunks are filled up with such tokens.
    """

    k: torch.Tensor
    v: torch.Tensor

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """Shape ``(HV, V, K)`` of one sequence's state."""
        return self.v.shape[-2], self.v.shape[-1], self.k.shape[-1]


class Sizes(NamedTuple):
    """Numbers of heads, and sizes of a head."""

    heads: int
    value_heads: int
    key_size: int
    value_size: int


EXAMPLE_DECAY = (1e-4, 5.0)
"""Bounds of ``-g``: from a state that lasts ten thousand tokens to one forgotten in one."""

InputsT = TypeVar("InputsT", bound=Inputs)
RowsT = TypeVar("RowsT", bound=TensorRecord)


@dataclass(frozen=True)
class Recurrence(ABC, Generic[InputsT, RowsT]):
    """A linear recurrence over a matrix state; the fields of a subclass are its options."""

    name: ClassVar[str]

    @abstractmethod
    def check(self, inputs: InputsT) -> None:
        """Raise ValueError unless the packed inputs have shapes that fit each other."""

    @abstractmethod
    def example(
        self,
        tokens: int,
        sizes: Sizes,
        generator: torch.Generator,
        decay: tuple[float, float] = EXAMPLE_DECAY,
    ) -> InputsT:
        """Return random packed inputs in float32, with decays log-uniform between two bounds."""

    @abstractmethod
    def token(self, state: torch.Tensor, inputs: InputsT) -> torch.Tensor:
        """Advance states ``[..., HV, V, K]`` in place by one token each, and return its output.

        Inputs are ``[..., heads, ...]`` and the output is ``[..., HV, V]``. Written in sums of
        products, whose value does not depend on the other states of a batch.
        """

    @abstractmethod
    def prepare(self, inputs: InputsT) -> RowsT:
        """Do all work on chunks ``[R, heads, 64, ...]`` that needs no state."""

    @abstractmethod
    def attend(self, rows: RowsT, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the tokens write, and their outputs ``[R, HV, 64, V]``, from start states.

        `state` is ``[R, HV, V, K]`` and stays as it is.
        """

    @abstractmethod
    def advance(
        self, state: torch.Tensor, rows: RowsT, writes: torch.Tensor, cut: torch.Tensor | None
    ) -> None:
        """Advance start states ``[R, HV, V, K]`` in place to their chunk's end, or to a cut.

        `cut` ``[R]`` counts the tokens of each chunk that enter, 1..64.
        """

    def kernel_terms(self, inputs: InputsT) -> KernelTerms | None:
        """Return the packed inputs in the form that Triton kernels take, None if none do."""
        return None
