"""Records passed between callers and the kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import torch

from state_kernels.tensors import check_tensors, is_integer


@dataclass(frozen=True)
class TensorRecord:
    """A record whose fields are tensors with the same first axes."""

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Self:
        """Return the record with `function` applied to every field."""
        return replace(self, **{f.name: function(getattr(self, f.name)) for f in fields(self)})

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return the fields in order."""
        return tuple(getattr(self, f.name) for f in fields(self))


class RecurrenceResult(NamedTuple):
    """Result of one pass over packed sequences.

    Attributes
    ----------
    output : Tensor ``[T, HV, V]``
        One vector per token and value head, in the values' dtype.
    final_state : Tensor ``[N, HV, V, K]``
        State after the last token of each sequence, float32 (float64 for float64 inputs).
    """

    output: torch.Tensor
    final_state: torch.Tensor


@dataclass(frozen=True)
class Captures:
    """States to keep from one pass: which sequence, at which depth, into which slot.

    Attributes
    ----------
    sequence : Tensor ``[C]``, integer
        Index of the sequence in this call's batch.
    depth : Tensor ``[C]``, integer
        Tokens of that sequence consumed *in this call* before the state is taken: 1..length.
    slot : Tensor ``[C]``, integer
        Row of the pool that receives the state. No row may be named twice.

    Raises
    ------
    TypeError, ValueError
        If they are not three tensors of as many integers. They are kept as int64.
    """

    sequence: torch.Tensor
    depth: torch.Tensor
    slot: torch.Tensor

    def __post_init__(self) -> None:
        check_tensors(**{f"captures.{name}": value for name, value in vars(self).items()})
        for name, value in list(vars(self).items()):
            if value.dim() != 1 or not is_integer(value):
                raise ValueError(
                    f"captures.{name}: got {value.dtype} with {value.dim()} dimensions; "
                    "need a 1-D integer tensor; convert it"
                )
            object.__setattr__(self, name, value.long())
        counts = (len(self.sequence), len(self.depth), len(self.slot))
        if len(set(counts)) != 1:
            raise ValueError(
                f"captures lengths: got {counts}; need three equal ones; "
                "give one sequence, depth and slot for each state"
            )

    def validate(self, cu_seqlens: torch.Tensor, slots: int) -> None:
        """Check the three tensors against a batch and a pool.

        Parameters
        ----------
        cu_seqlens : Tensor ``[N + 1]``
            Cumulative sequence lengths of the batch.
        slots : int
            Number of rows of the pool.

        Raises
        ------
        ValueError
            If a value is out of range, or a slot is named twice.
        """
        if len(self.slot) == 0:
            return
        lengths = cu_seqlens.diff().cpu()
        sequence, depth, slot = self.sequence.cpu(), self.depth.cpu(), self.slot.cpu()
        _require_range("captures.sequence", sequence, 0, len(lengths) - 1)
        _require_range("captures.slot", slot, 0, slots - 1)
        outside = (depth < 1) | (depth > lengths[sequence])
        if outside.any():
            first = int(outside.nonzero()[0, 0])
            raise ValueError(
                f"captures.depth: got {int(depth[first])} for sequence {int(sequence[first])}; "
                f"need 1..{int(lengths[sequence[first]])}; "
                "count depth within the tokens of this call"
            )
        if (slot.sort().values.diff() == 0).any():
            raise ValueError(
                f"captures.slot: got {slot.tolist()}; need distinct slots; "
                "give each state a slot of its own"
            )


def _require_range(what: str, values: torch.Tensor, low: int, high: int) -> None:
    outside = (values < low) | (values > high)
    if outside.any():
        raise ValueError(
            f"{what}: got {int(values[outside][0])}; need {low}..{high}; "
            "pass the indices of this call's batch and pool"
        )
